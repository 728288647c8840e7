// PeerTable: one I/O thread's part of the connection table: remote address -> engine.
//
//   connect(remote): a usable engine of an allowed kind  ->  open a socket on it, in band
//                    an attempt of the same choice       ->  wait for what comes of it
//                    otherwise                           ->  begin an attempt
//
// All sockets to one address meet on one thread (AddressTable), so a process has one engine to
// it; only who insists on another kind of device than it has gets a second one.
// Used on its I/O thread only.
#pragma once

#include <map>

#include "be/transport/connector.h"
#include "be/transport/connector_paths.h"
#include "be/transport/engine_link.h"

namespace be {

class PeerTable final : public ConnectorOwner {
 public:
  PeerTable(const TransportContext& context, IoThreadImpl& thread)
      : context_(context), thread_(thread) {}
  virtual ~PeerTable() = default;

  void connect(const Address& remote, TransportChoice choice, Time deadline,
               SocketHandler* handler);

  // ConnectorOwner
  void on_engine(EngineLink* link) override;
  void on_link_ended(EngineLink* link) override;
  void on_attempt_ended(Connector* connector) override;
  void connect_tcp(const Address& remote, Time deadline, SocketHandler* handler) override;
  Status check_path(const Address& remote, const NodeDevice& device) const override;

 private:
  EngineLink* usable_link(const Address& remote, TransportChoice choice) const;

  const TransportContext& context_;
  IoThreadImpl& thread_;
  std::multimap<Address, EngineLink*> links_;
  std::multimap<Address, Connector*> attempts_;  // that may become engines
  DeadPaths dead_paths_;
};

}  // namespace be
