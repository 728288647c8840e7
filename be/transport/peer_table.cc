#include "be/transport/peer_table.h"

#include <memory>
#include <utility>

namespace be {

void PeerTable::connect(const Address& remote, TransportChoice choice, Time deadline,
                        SocketHandler* handler) {
  if (choice == TransportChoice::kTcp ||
      (choice == TransportChoice::kAuto && context_.devices.empty())) {
    return connect_tcp(remote, deadline, handler);
  }
  if (EngineLink* link = usable_link(remote, choice)) return link->open_socket(handler, deadline);
  const auto [begin, end] = attempts_.equal_range(remote);
  for (auto attempt = begin; attempt != end; ++attempt) {
    if (attempt->second->choice() == choice) return attempt->second->add(handler, deadline);
  }
  Connector* connector = thread_.adopt(std::make_unique<Connector>(
      context_, thread_, remote, choice, static_cast<ConnectorOwner*>(this)));
  attempts_.emplace(remote, connector);
  connector->add(handler, deadline);
  connector->start();
}

void PeerTable::connect_tcp(const Address& remote, Time deadline, SocketHandler* handler) {
  Connector* connector = thread_.adopt(std::make_unique<Connector>(
      context_, thread_, remote, TransportChoice::kTcp, static_cast<ConnectorOwner*>(this)));
  connector->add(handler, deadline);
  connector->start();
}

EngineLink* PeerTable::usable_link(const Address& remote, TransportChoice choice) const {
  const auto [begin, end] = links_.equal_range(remote);
  for (auto link = begin; link != end; ++link) {
    if (allows(choice, link->second->kind())) return link->second;
  }
  return nullptr;
}

void PeerTable::on_engine(EngineLink* link) { links_.emplace(link->remote(), link); }

void PeerTable::on_link_ended(EngineLink* link) {
  dead_paths_.engine_ended(link->remote(), link->device_index(), link->heard(), thread_.now());
  const auto [begin, end] = links_.equal_range(link->remote());
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second != link) continue;
    links_.erase(entry);
    return;
  }
}

Status PeerTable::check_path(const Address& remote, const NodeDevice& device) const {
  return dead_paths_.check(remote, device.index, thread_.now());
}

void PeerTable::on_attempt_ended(Connector* connector) {
  const auto [begin, end] = attempts_.equal_range(connector->remote());
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second != connector) continue;
    attempts_.erase(entry);
    return;
  }
}

}  // namespace be
