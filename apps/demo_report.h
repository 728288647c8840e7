// What the demonstration found: one JSON object with every figure, and one table for people.
//
//   {"softnic": {"auc", "fetch": {...}, "push": {...}, "training": {...}, ...},
//    "tcp":     { the same },
//    "ratio":   {"fetch_mean", ...},     the first transport's figure / the second's
//    "setup":   {...}}
//
// fetch and push are OperationMeter figures: ranking requests, and pushes one at a time; training
// has those of all trainers at work at once. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/cluster.h"

namespace be::apps {

// Of one transport, when trainers and ranker have ended.
nlohmann::json transport_figures(Cluster& cluster);

nlohmann::json demo_figures(const ClusterPlan& plan, const std::vector<std::string>& transports,
                            std::vector<nlohmann::json> figures);

std::string demo_table(const nlohmann::json& demo, const std::vector<std::string>& transports);

}  // namespace be::apps
