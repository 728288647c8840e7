// What a virtual Poller waits for: something that becomes readable and writable.
//
// Owned by its Host's table of descriptors. Whoever changes its readiness calls changed().
#pragma once

namespace be::sim {

class VirtualPoller;

class Descriptor {
 public:
  virtual ~Descriptor() = default;

  virtual bool readable() const = 0;
  virtual bool writable() const { return false; }
  virtual bool hung_up() const { return false; }  // reported whatever is waited for
  virtual void on_close() {}                      // its owner has closed it

  void changed();  // readiness may have grown
  void watched_by(VirtualPoller* poller) { poller_ = poller; }
  bool is_watched_by(const VirtualPoller& poller) const { return poller_ == &poller; }

 private:
  VirtualPoller* poller_ = nullptr;
};

}  // namespace be::sim
