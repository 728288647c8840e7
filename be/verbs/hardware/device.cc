#include "be/verbs/hardware/device.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "be/base/log.h"
#include "be/verbs/errors.h"
#include "be/verbs/hardware/endpoint.h"
#include "be/verbs/hardware/lag_ports.h"
#include "be/verbs/hardware/memlock.h"

namespace be::hardware {
namespace {

constexpr uint32_t kInlineProbe = 512;  // more is never worth copying

uint32_t random_psn() {
  std::random_device random;
  return random() & 0xffffff;
}

uint32_t as_limit(int value) { return static_cast<uint32_t>(std::max(value, 0)); }

}  // namespace

Result<std::unique_ptr<HardwareDevice>> HardwareDevice::open(ibv_device* device,
                                                             const HardwareOptions& options) {
  Context context(ibv_open_device(device));
  if (!context) return verb_error("ibv_open_device", errno, ibv_get_device_name(device));
  std::unique_ptr<HardwareDevice> opened(new HardwareDevice(std::move(context), options));
  BE_RETURN_IF_ERROR(opened->start());
  return opened;
}

HardwareDevice::HardwareDevice(Context context, const HardwareOptions& options)
    : options_(options),
      name_(ibv_get_device_name(context->device)),
      context_(std::move(context)),
      router_(name_) {}

HardwareDevice::~HardwareDevice() = default;

Status HardwareDevice::start() {
  ibv_device_attr attributes{};
  if (const int why = ibv_query_device(context_.get(), &attributes); why != 0) {
    return verb_error("ibv_query_device", why, name_);
  }
  limits_ = {.max_queue_depth = as_limit(attributes.max_qp_wr),
             .max_completions = as_limit(attributes.max_cqe),
             .max_send_sge = as_limit(attributes.max_sge),
             .max_recv_sge = as_limit(attributes.max_sge),
             .max_inline_bytes = 0,
             .max_queue_pairs = as_limit(attributes.max_qp)};
  BE_ASSIGN_OR_RETURN(port_, choose_port(context_.get(), attributes.phys_port_cnt));
  BE_RETURN_IF_ERROR(set_nonblocking(context_->async_fd));
  pd_.reset(ibv_alloc_pd(context_.get()));
  if (!pd_) return verb_error("ibv_alloc_pd", errno, name_);
  if (options_.spread_lag_ports) lag_ports_ = PortSpread(lag_port_count(context_.get()));
  return probe();
}

// Makes one of each kind, so that a device is not taken that cannot serve; learns the inline
// size, which no query tells.
Status HardwareDevice::probe() {
  BE_ASSIGN_OR_RETURN(ibv_cq* const cq, create_cq(2, nullptr, nullptr, nullptr));
  QueuePairOptions options;
  options.send_cq = options.recv_cq = cq;
  options.send_depth = options.recv_depth = 1;
  options.max_inline_bytes = kInlineProbe;
  Status status;
  if (auto created = create_queue_pair(pd_.get(), options, port_); created.ok()) {
    limits_.max_inline_bytes = created->max_inline_bytes;
  } else {
    status = created.status();
  }
  destroy_cq(cq).ignore();
  if (!status.ok()) return status;

  alignas(4096) static uint8_t page[4096];
  auto region = register_memory(page, sizeof page, IBV_ACCESS_LOCAL_WRITE, {});
  if (!region.ok()) return region.status();
  return deregister(*region);
}

std::string HardwareDevice::describe() const {
  return fmt::format("{}, up to {} work requests a queue, {} bytes inline, {}", port_.to_string(),
                     limits_.max_queue_depth, limits_.max_inline_bytes,
                     hardware::to_string(memlock_of_this_process()));
}

uint32_t HardwareDevice::port_mtu_bytes() const { return mtu_bytes(port_.mtu); }

std::string HardwareDevice::about(std::string_view object) const {
  return fmt::format("{} of device {}", object, name_);
}

Result<ibv_mr*> HardwareDevice::register_memory(void* address, size_t length, int access,
                                                const Backing&) {
  // An optional bit: libibverbs and the kernel drop it where a provider does not know it.
  if (!options_.relaxed_ordering) access &= ~IBV_ACCESS_RELAXED_ORDERING;
  ibv_mr* region = ibv_reg_mr(pd_.get(), address, length, access);
  if (region != nullptr) return region;
  const int why = errno;
  const Status status = verb_error("ibv_reg_mr", why, about(fmt::format("{} bytes", length)));
  if (why != ENOMEM) return status;
  return Status(
      Code::kResourceExhausted,
      fmt::format("{}; {}", status.message(), hardware::to_string(memlock_of_this_process())));
}

// Of a device that is gone nothing is left that destroying could end, and every such verb fails.
bool HardwareDevice::gone() const { return router_.long_lost(EventRouter::Clock::now()); }

Status HardwareDevice::deregister(ibv_mr* region) {
  if (const int why = ibv_dereg_mr(region); why != 0 && !gone()) {
    return verb_error("ibv_dereg_mr", why, about("a region"));
  }
  return ok_status();
}

Result<std::unique_ptr<EventChannel>> HardwareDevice::create_event_channel() {
  BE_ASSIGN_OR_RETURN(auto channel, HardwareEventChannel::create(context_.get(), router_));
  return std::unique_ptr<EventChannel>(std::move(channel));
}

Result<ibv_td*> HardwareDevice::create_thread_domain() {
  ibv_td_init_attr domain_attributes{};
  ibv_td* domain = ibv_alloc_td(context_.get(), &domain_attributes);
  if (domain == nullptr) {
    if (errno == EOPNOTSUPP) return nullptr;
    return verb_error("ibv_alloc_td", errno, name_);
  }
  ibv_parent_domain_init_attr parent_attributes{};
  parent_attributes.pd = pd_.get();
  parent_attributes.td = domain;
  ibv_pd* parent = ibv_alloc_parent_domain(context_.get(), &parent_attributes);
  if (parent == nullptr) {
    const int why = errno;
    ibv_dealloc_td(domain);
    if (why == EOPNOTSUPP) return nullptr;
    return verb_error("ibv_alloc_parent_domain", why, name_);
  }
  std::lock_guard lock(mutex_);
  parent_domains_.emplace(domain, parent);
  return domain;
}

void HardwareDevice::destroy_thread_domain(ibv_td* domain) {
  if (domain == nullptr) return;
  ibv_pd* parent = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = parent_domains_.find(domain);
    if (found == parent_domains_.end()) return;
    parent = found->second;
    parent_domains_.erase(found);
  }
  if (ibv_dealloc_pd(parent) != 0 || ibv_dealloc_td(domain) != 0) {
    log_error("a thread domain of device {} was destroyed while in use", name_);
  }
}

ibv_pd* HardwareDevice::pd_of(ibv_td* thread_domain) {
  std::lock_guard lock(mutex_);
  const auto found = parent_domains_.find(thread_domain);
  return found != parent_domains_.end() ? found->second : pd_.get();
}

Result<ibv_cq*> HardwareDevice::create_cq(uint32_t entries, EventChannel* channel, void* user,
                                          ibv_td* thread_domain) {
  auto* ours = static_cast<HardwareEventChannel*>(channel);
  ibv_comp_channel* completions = ours != nullptr ? ours->completions() : nullptr;
  ibv_cq* cq = nullptr;
  if (thread_domain != nullptr) {  // the provider may then poll without its lock
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = entries;
    attributes.cq_context = user;
    attributes.channel = completions;
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    attributes.parent_domain = pd_of(thread_domain);
    if (ibv_cq_ex* extended = ibv_create_cq_ex(context_.get(), &attributes)) {
      cq = ibv_cq_ex_to_cq(extended);
    }
  }
  if (cq == nullptr) {
    cq = ibv_create_cq(context_.get(), static_cast<int>(entries), user, completions, 0);
  }
  if (cq == nullptr) {
    return verb_error("ibv_create_cq", errno, about(fmt::format("{} entries", entries)));
  }
  router_.add_cq(cq, ours != nullptr ? ours->inbox() : nullptr);
  return cq;
}

Status HardwareDevice::destroy_cq(ibv_cq* cq) {
  router_.remove_cq(cq);
  if (const int why = ibv_destroy_cq(cq); why != 0 && !gone()) {
    return verb_error("ibv_destroy_cq", why, about("a CQ"));
  }
  return ok_status();
}

Result<ibv_srq*> HardwareDevice::create_srq(uint32_t entries, uint32_t max_sge) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = entries;
  attributes.attr.max_sge = max_sge;
  ibv_srq* srq = ibv_create_srq(pd_.get(), &attributes);
  if (srq == nullptr) {
    return verb_error("ibv_create_srq", errno, about(fmt::format("{} receives", entries)));
  }
  return srq;
}

Status HardwareDevice::destroy_srq(ibv_srq* srq) {
  router_.remove_srq(srq);
  if (const int why = ibv_destroy_srq(srq); why != 0 && !gone()) {
    return verb_error("ibv_destroy_srq", why, about("an SRQ"));
  }
  return ok_status();
}

Result<QueuePair> HardwareDevice::create_qp(const QueuePairOptions& options) {
  BE_RETURN_IF_ERROR(router_.check(options.send_cq, options.recv_cq, options.srq));
  BE_ASSIGN_OR_RETURN(auto created,
                      create_queue_pair(pd_of(options.thread_domain), options, port_));
  ibv_qp* qp = created.qp.release();
  router_.add_qp(qp, {.send_cq = options.send_cq, .recv_cq = options.recv_cq, .srq = options.srq});
  std::lock_guard lock(mutex_);
  connections_[qp] = {.port = port_, .packet_sequence_number = random_psn()};
  return QueuePair{.qp = qp, .max_inline_bytes = created.max_inline_bytes};
}

Result<HardwareDevice::Connection> HardwareDevice::connection_of(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  const auto found = connections_.find(qp);
  if (found == connections_.end()) {
    return error(Code::kInvalidArgument, "no such queue pair on device {}", name_);
  }
  return found->second;
}

Result<EndpointBlob> HardwareDevice::local_endpoint(ibv_qp* qp) {
  BE_ASSIGN_OR_RETURN(auto connection, connection_of(qp));
  BE_ASSIGN_OR_RETURN(connection.port, query_port(context_.get(), port_.number));
  {
    std::lock_guard lock(mutex_);
    connections_[qp] = connection;
  }
  return encode({.link_layer = connection.port.link_layer,
                 .mtu = connection.port.mtu,
                 .queue_pair_number = qp->qp_num,
                 .packet_sequence_number = connection.packet_sequence_number,
                 .lid = connection.port.lid,
                 .gid = connection.port.gid});
}

Status HardwareDevice::reachable(const EndpointBlob& remote) {
  BE_ASSIGN_OR_RETURN(const auto endpoint, decode(remote));
  return check_reachable({.link_layer = port_.link_layer}, endpoint);
}

Status HardwareDevice::connect_qp(ibv_qp* qp, const EndpointBlob& remote, const uint8_t[16], bool,
                                  const ConnectOptions& options) {
  BE_ASSIGN_OR_RETURN(const auto connection, connection_of(qp));
  BE_ASSIGN_OR_RETURN(const auto endpoint, decode(remote));
  BE_RETURN_IF_ERROR(check_reachable({.link_layer = connection.port.link_layer}, endpoint));
  BE_RETURN_IF_ERROR(to_rtr(qp, connection.port, endpoint, options, options_));
  BE_RETURN_IF_ERROR(to_rts(qp, connection.packet_sequence_number, options, options_));
  choose_lag_port(qp);
  router_.post_connected(qp);
  return ok_status();
}

// The adapter has chosen a port already: where ours cannot be had, the queue pair works all the
// same.
void HardwareDevice::choose_lag_port(ibv_qp* qp) {
  if (lag_ports_.ports() == 0) return;
  uint8_t port = 0;
  {
    std::lock_guard lock(mutex_);
    port = connections_[qp].lag_port = lag_ports_.take();
  }
  if (const Status status = send_through_lag_port(qp, port); !status.ok()) {
    log_warn("device {}: {}", name_, status.message());
  }
}

Status HardwareDevice::fail_qp(ibv_qp* qp) { return to_error(qp); }

ibv_qp_state HardwareDevice::qp_state(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial) != 0) return IBV_QPS_UNKNOWN;
  return attributes.qp_state;
}

Result<QuiesceToken> HardwareDevice::retire_qp(ibv_qp* qp) {
  BE_ASSIGN_OR_RETURN(const auto connection, connection_of(qp));
  const std::string object = about(fmt::format("QP {}", qp->qp_num));
  // Before it is destroyed: another thread may be given the same address at once.
  const EventRouter::Member member = router_.remove_qp(qp);
  {
    std::lock_guard lock(mutex_);
    connections_.erase(qp);
  }
  if (const int why = ibv_destroy_qp(qp); why != 0 && !gone()) {
    router_.add_qp(qp, member);
    std::lock_guard lock(mutex_);
    connections_[qp] = connection;
    return verb_error("ibv_destroy_qp", why, object);
  }
  if (connection.lag_port != 0) {
    std::lock_guard lock(mutex_);
    lag_ports_.give_back(connection.lag_port);
  }
  return kQuiescedNow;
}

}  // namespace be::hardware
