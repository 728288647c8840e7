#include "be/ps/table_set.h"

#include <algorithm>

namespace be::ps {

Table* TableSet::lookup(TableId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second.get();
}

Result<bool> TableSet::create(const TableSpec& spec) {
  BE_RETURN_IF_ERROR(spec.check());
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(spec.id());
  if (found != tables_.end()) {
    if (found->second->spec() == spec) return false;
    return error(Code::kAlreadyExists, "table exists with other properties: it is {}; asked for {}",
                 found->second->spec().to_string(), spec.to_string());
  }
  if (tables_.size() >= max_tables_) {
    return error(Code::kResourceExhausted, "table '{}' is one more than the {} of this server",
                 spec.full_name(), max_tables_);
  }
  tables_.emplace(spec.id(), std::make_unique<Table>(spec));
  return true;
}

Result<Table*> TableSet::find(TableId id) const {
  if (Table* table = lookup(id)) return table;
  return error(Code::kNotFound, "this server has no table with id {:#018x}", id);
}

Result<Table*> TableSet::find(std::string_view full_name) const {
  Table* table = lookup(table_id(full_name));
  if (table != nullptr && table->spec().full_name() == full_name) return table;
  std::string names;
  for (const Table* other : list()) {
    names += (names.empty() ? "'" : ", '") + other->spec().full_name() + "'";
  }
  return error(Code::kNotFound, "no table '{}'; there {} {}", full_name,
               names.empty() ? "is" : "are", names.empty() ? "none" : names);
}

std::vector<const Table*> TableSet::list() const {
  std::vector<const Table*> list;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, table] : tables_) list.push_back(table.get());
  }
  std::sort(list.begin(), list.end(), [](const Table* a, const Table* b) {
    return a->spec().full_name() < b->spec().full_name();
  });
  return list;
}

}  // namespace be::ps
