// TableSet: the tables of one server, of all its models, by id.
//
// Tables are created, never removed: a pointer stays good as long as the set. Any thread; the
// lock is held for one look-up. Failure: a Status that names the table.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "be/base/status.h"
#include "be/ps/table.h"
#include "be/ps/table_spec.h"

namespace be::ps {

class TableSet {
 public:
  explicit TableSet(size_t max_tables) : max_tables_(max_tables) {}

  // True: made now; false: it was there with the same properties. With others, or with another
  // name of the same id: kAlreadyExists; kResourceExhausted at the maximum.
  Result<bool> create(const TableSpec& spec);

  Result<Table*> find(TableId id) const;                  // kNotFound
  Result<Table*> find(std::string_view full_name) const;  // kNotFound, naming those there are
  std::vector<const Table*> list() const;                 // in the order of their names

 private:
  Table* lookup(TableId id) const;

  const size_t max_tables_;
  mutable std::mutex mutex_;
  std::unordered_map<TableId, std::unique_ptr<Table>> tables_;
};

}  // namespace be::ps
