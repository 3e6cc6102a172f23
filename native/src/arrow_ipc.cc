#include "arrow_ipc.h"

#include <cstring>

#include "protobuf.h"
#include "utf8.h"

namespace tensorwire {
namespace {

enum Type { kInt = 2, kFloat = 3, kUnion = 14, kFixedBinary = 15, kFixedList = 16 };

struct Table {
  int64_t at = 0;
  int64_t slots = 0;  // where the vtable's entries begin
  int64_t count = 0;
};

// The bytes, what may still be taken out of them, and what was wrong first. After that every step
// fails.
class Flatbuffer {
 public:
  Flatbuffer(const uint8_t* data, size_t size)
      : data_(data), size_(static_cast<int64_t>(size)), tables_(size / 8), text_(4 * size) {}

  int status = kOk;
  int64_t offset = 0;

  bool fail(int why, int64_t where) {
    status = why;
    offset = where;
    return false;
  }

  template <class T>
  bool read(int64_t at, T& out) {
    if (at < 0 || at > size_ - static_cast<int64_t>(sizeof(T)))
      return fail(kBadOffset, at < 0 ? 0 : at > size_ ? size_ : at);
    std::memcpy(&out, data_ + at, sizeof(T));
    return true;
  }

  bool root(Table& out) {
    uint32_t at;
    return read(0, at) && table_at(at, out);
  }

  bool table_at(int64_t at, Table& out) {
    int32_t back;
    uint16_t size;
    if (!read(at, back) || !read(at - back, size)) return false;
    if (size < 4 || size % 2 || at - back + size > size_) return fail(kBadOffset, at);
    out = {at, at - back + 4, size / 2 - 2};
    return true;
  }

  // 0, where nothing can lie, for a field that the table does not have. The vtable has been checked
  // whole.
  int64_t place(const Table& t, int slot) const {
    uint16_t value = 0;
    if (slot < t.count) std::memcpy(&value, data_ + t.slots + 2 * slot, 2);
    return value ? t.at + value : 0;
  }

  template <class T, class Out>
  bool number(const Table& t, int slot, Out& out) {  // `out` keeps what it is if there is none
    const int64_t at = place(t, slot);
    T value;
    if (!at) return true;
    if (!read(at, value)) return false;
    out = static_cast<Out>(value);
    return true;
  }

  bool behind(const Table& t, int slot, int64_t& out) {
    const int64_t at = place(t, slot);
    uint32_t forward = 0;
    if (at && !read(at, forward)) return false;
    out = at ? at + forward : 0;
    return true;
  }

  bool table(const Table& t, int slot, Table& out, bool& there) {
    int64_t at;
    if (!behind(t, slot, at)) return false;
    there = at != 0;
    return !there || table_at(at, out);
  }

  bool vector(const Table& t, int slot, int64_t item, int64_t& count, int64_t& first) {
    int64_t at;
    uint32_t n;
    count = first = 0;
    if (!behind(t, slot, at)) return false;
    if (!at) return true;
    if (!read(at, n)) return false;
    if (n * item > size_ - at - 4) return fail(kBadOffset, at);
    count = n;
    first = at + 4;
    return true;
  }

  bool tables(const Table& t, int slot, std::vector<Table>& out) {
    int64_t count, at;
    if (!vector(t, slot, 4, count, at)) return false;
    if (static_cast<size_t>(count) > tables_) return fail(kShared, at);
    tables_ -= static_cast<size_t>(count);
    out.resize(static_cast<size_t>(count));
    for (Table& table : out) {
      uint32_t forward;
      if (!read(at, forward) || !table_at(at + forward, table)) return false;
      at += 4;
    }
    return true;
  }

  bool text(const Table& t, int slot, std::string_view& out) {
    int64_t count, at;
    if (!vector(t, slot, 1, count, at)) return false;
    if (static_cast<size_t>(count) > text_) return fail(kShared, at);
    text_ -= static_cast<size_t>(count);
    if (!is_utf8(data_ + at, static_cast<size_t>(count))) return fail(kBadUtf8, at);
    out = {reinterpret_cast<const char*>(data_) + at, static_cast<size_t>(count)};
    return true;
  }

  bool pairs(const Table& t, int slot, std::vector<IpcPair>& out) {
    std::vector<Table> found;
    if (!tables(t, slot, found)) return false;
    out.resize(found.size());
    for (size_t i = 0; i < found.size(); i++)
      if (!text(found[i], 0, out[i].key) || !text(found[i], 1, out[i].value)) return false;
    return true;
  }

  bool structs(const Table& t, int slot, int64_t item, IpcStructs& out) {
    int64_t count, at;
    if (!vector(t, slot, item, count, at)) return false;
    out = {data_ + at, static_cast<size_t>(count)};
    return true;
  }

 private:
  const uint8_t* data_;
  int64_t size_;
  size_t tables_;  // in what writers make, each takes 8 bytes at least
  size_t text_;
};

bool read_field(Flatbuffer& in, const Table& table, std::vector<IpcField>& out, int depth) {
  if (depth == kIpcDepth) return in.fail(kNested, table.at);
  IpcField field;
  Table about, code, index;
  bool has_about, has_code, has_index;
  if (!in.number<uint8_t>(table, 2, field.kind) || !in.table(table, 3, about, has_about) ||
      !in.table(table, 4, code, has_code))
    return false;
  if (has_about && (field.kind == kInt || field.kind == kFixedList || field.kind == kFixedBinary)) {
    if (!in.number<int32_t>(about, 0, field.width)) return false;
    if (field.kind == kInt && !in.number<uint8_t>(about, 1, field.is_signed)) return false;
  } else if (has_about && (field.kind == kFloat || field.kind == kUnion)) {
    if (!in.number<int16_t>(about, 0, field.width)) return false;
  }
  if (has_code) {
    field.coded = true;
    if (!in.table(code, 1, index, has_index) || !in.number<int64_t>(code, 0, field.id))
      return false;
    if (has_index) {
      field.index_bits = field.index_signed = 0;
      if (!in.number<int32_t>(index, 0, field.index_bits) ||
          !in.number<uint8_t>(index, 1, field.index_signed))
        return false;
    }
  }
  std::vector<Table> children;
  if (!in.text(table, 0, field.name) || !in.pairs(table, 6, field.pairs) ||
      !in.tables(table, 5, children))
    return false;
  field.children = children.size();
  out.push_back(std::move(field));
  for (const Table& child : children)
    if (!read_field(in, child, out, depth + 1)) return false;
  return true;
}

bool read_schema(Flatbuffer& in, const Table& table, IpcSchema& out) {
  std::vector<Table> fields;
  if (!in.tables(table, 1, fields)) return false;
  out.fields.reserve(fields.size());
  for (const Table& field : fields)
    if (!read_field(in, field, out.fields, 0)) return false;
  return in.number<int16_t>(table, 0, out.endianness) && in.pairs(table, 2, out.pairs);
}

int64_t number_at(const IpcStructs& structs, size_t i) {
  int64_t value;
  std::memcpy(&value, structs.at + 8 * i, 8);
  return value;
}

bool is_sound(const IpcBatch& batch, int64_t body) {
  if (batch.length < 0 || body < 0) return false;
  for (size_t i = 0; i < batch.counts.count; i++)
    if (number_at(batch.counts, i) < 0) return false;
  for (size_t i = 0; i < 2 * batch.nodes.count; i += 2) {
    const int64_t length = number_at(batch.nodes, i), nulls = number_at(batch.nodes, i + 1);
    if (length < 0 || nulls < 0 || nulls > length) return false;
  }
  int64_t end = 0;
  for (size_t i = 0; i < 2 * batch.buffers.count; i += 2) {
    const int64_t start = number_at(batch.buffers, i), size = number_at(batch.buffers, i + 1);
    if (size < 0 || start < end || start > body - size) return false;
    end = start + size;
  }
  return true;
}

bool read_batch(Flatbuffer& in, const Table& table, int64_t body, IpcBatch& out) {
  Table packed;
  bool is_packed;
  if (!in.table(table, 3, packed, is_packed)) return false;
  if (is_packed) {
    int method = 0;
    out.codec = 0;
    if (!in.number<int8_t>(packed, 0, out.codec)) return false;
    if (out.codec != 0 && out.codec != 1) return in.fail(kWrongMessage, packed.at);
    if (!in.number<int8_t>(packed, 1, method)) return false;
    if (method) return in.fail(kWrongMessage, packed.at);
  }
  if (!in.number<int64_t>(table, 0, out.length) || !in.structs(table, 1, 16, out.nodes) ||
      !in.structs(table, 2, 16, out.buffers) || !in.structs(table, 4, 8, out.counts))
    return false;
  return is_sound(out, body) || in.fail(kBadLayout, table.at);
}

bool read_dictionary(Flatbuffer& in, const Table& table, IpcMessage& out) {
  Table data;
  bool there;
  if (!in.table(table, 1, data, there)) return false;
  if (!there) return in.fail(kWrongMessage, table.at);
  return in.number<int64_t>(table, 0, out.id) && in.number<uint8_t>(table, 2, out.delta) &&
         read_batch(in, data, out.body, out.batch);
}

bool read_message(Flatbuffer& in, IpcMessage& out) {
  Table root, header;
  bool there;
  if (!in.root(root) || !in.number<uint8_t>(root, 1, out.kind) || !in.table(root, 2, header, there))
    return false;
  if (!there || out.kind < 1 || out.kind > 3) return in.fail(kWrongMessage, root.at);
  if (!in.number<int64_t>(root, 3, out.body) || !in.number<int16_t>(root, 0, out.version))
    return false;
  if (out.kind == 1) return read_schema(in, header, out.schema);
  return out.kind == 2 ? read_dictionary(in, header, out)
                       : read_batch(in, header, out.body, out.batch);
}

bool read_footer(Flatbuffer& in, IpcFooter& out) {
  Table root, schema;
  bool there;
  if (!in.root(root) || !in.table(root, 1, schema, there)) return false;
  if (!there) return in.fail(kWrongMessage, root.at);
  return read_schema(in, schema, out.schema) && in.structs(root, 2, 24, out.dictionaries) &&
         in.structs(root, 3, 24, out.batches) && in.number<int16_t>(root, 0, out.version);
}

}  // namespace

void read_ipc_message(const uint8_t* data, size_t size, IpcMessage& out) {
  Flatbuffer in(data, size);
  read_message(in, out);
  out.status = in.status;
  out.offset = static_cast<size_t>(in.offset);
}

void read_ipc_footer(const uint8_t* data, size_t size, IpcFooter& out) {
  Flatbuffer in(data, size);
  read_footer(in, out);
  out.status = in.status;
  out.offset = static_cast<size_t>(in.offset);
}

}  // namespace tensorwire
