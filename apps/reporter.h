// Reporter: what a trainer or ranker tells while it works, on standard output.
//
//   for people     "epoch 2/6: loss 0.5312, AUC 0.7970"
//   for programs   (--events) one JSON object a line: {"event":"epoch","epoch":2,"loss":...}
//
// Kinds of events: "waiting" (--paced: for a line on standard input), "progress", "epoch",
// "round", "result". One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace be::apps {

class Reporter {
 public:
  explicit Reporter(bool events) : events_(events) {}

  bool events() const { return events_; }
  void event(const char* kind, nlohmann::json fields) const;  // nothing without --events
  void line(const std::string& text) const;                   // nothing with --events

 private:
  const bool events_;
};

}  // namespace be::apps
