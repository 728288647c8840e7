#include "be/verbs/hardware/lag_ports.h"

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include "be/verbs/errors.h"

namespace be::hardware {
namespace {

struct Mlx5dv {
  decltype(&mlx5dv_is_supported) is_supported = nullptr;
  decltype(&mlx5dv_query_device) query_device = nullptr;
  decltype(&mlx5dv_modify_qp_lag_port) modify_qp_lag_port = nullptr;

  bool complete() const {
    return is_supported != nullptr && query_device != nullptr && modify_qp_lag_port != nullptr;
  }
};

template <typename Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

// Stays loaded: libibverbs has the same library as its provider.
const Mlx5dv& mlx5dv() {
  static const Mlx5dv functions = [] {
    Mlx5dv found;
    if (void* library = ::dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      load(library, "mlx5dv_is_supported", found.is_supported);
      load(library, "mlx5dv_query_device", found.query_device);
      load(library, "mlx5dv_modify_qp_lag_port", found.modify_qp_lag_port);
    }
    return found;
  }();
  return functions;
}

}  // namespace

uint8_t lag_port_count(ibv_context* context) {
  if (!mlx5dv().complete() || !mlx5dv().is_supported(context->device)) return 0;
  mlx5dv_context attributes{};
  attributes.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
  if (mlx5dv().query_device(context, &attributes) != 0) return 0;
  const bool told = (attributes.comp_mask & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) != 0;
  return told && attributes.num_lag_ports > 1 ? attributes.num_lag_ports : 0;
}

Status send_through_lag_port(ibv_qp* qp, uint8_t port) {
  if (!mlx5dv().complete()) return Status(Code::kUnsupported, "there is no libmlx5.so.1");
  if (const int why = mlx5dv().modify_qp_lag_port(qp, port); why != 0) {
    return verb_error("mlx5dv_modify_qp_lag_port", why,
                      fmt::format("QP {} to port {}", qp->qp_num, port));
  }
  return ok_status();
}

}  // namespace be::hardware
