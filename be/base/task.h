// A callable that may own move-only things (Buffers), so it can be handed between threads.
#pragma once

#include <absl/functional/any_invocable.h>

namespace be {

template <typename Signature>
using UniqueFunction = absl::AnyInvocable<Signature>;

using Task = UniqueFunction<void()>;

}  // namespace be
