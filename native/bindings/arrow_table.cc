// Plain Arrow tables in one step: numbers without nulls, one row an item, in one batch that is not
// compressed. Whatever else a file may hold, valid or not, is None, and goes the general way.
#include <charconv>
#include <climits>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "arrow_ipc_write.h"
#include "protobuf.h"
#include "python.h"

namespace tensorwire {
namespace {

using namespace std::literals;

constexpr size_t kMaxColumns =
    1'000'000;  // the default of Limits; callers with others go the general way
constexpr size_t kAlign = 64;
constexpr std::string_view kKey = "tensorwire", kLone = R"({"version":1,"spec":{}})";
constexpr std::string_view kName = "ARROW:extension:name", kAbout = "ARROW:extension:metadata",
                           kTensor = "arrow.fixed_shape_tensor";
enum Type { kInt = 2, kFloat = 3, kFixedList = 16 };

size_t padding(size_t size, size_t to) { return (to - size % to) % to; }

int numpy_type(const IpcField& field) {
  if (field.coded || field.children || !field.pairs.empty()) return NPY_NOTYPE;
  if (field.kind == kFloat)
    return field.width == 0   ? NPY_HALF
           : field.width == 1 ? NPY_FLOAT
           : field.width == 2 ? NPY_DOUBLE
                              : NPY_NOTYPE;
  if (field.kind != kInt) return NPY_NOTYPE;
  const bool is_signed = field.is_signed != 0;
  switch (field.width) {
    case 8:
      return is_signed ? NPY_INT8 : NPY_UINT8;
    case 16:
      return is_signed ? NPY_INT16 : NPY_UINT16;
    case 32:
      return is_signed ? NPY_INT32 : NPY_UINT32;
    case 64:
      return is_signed ? NPY_INT64 : NPY_UINT64;
    default:
      return NPY_NOTYPE;
  }
}

bool take(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// [1,2,3], in the shortest form only.
bool take_numbers(std::string_view& text, int64_t* out, int& count) {
  count = 0;
  if (!take(text, "[")) return false;
  while (!take(text, "]")) {
    int64_t value;
    if ((count && !take(text, ",")) || count == kFastRank - 1 || text.empty() || text[0] < '0' ||
        text[0] > '9')
      return false;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto digits = static_cast<size_t>(stop - text.data());
    if (error != std::errc() || (text[0] == '0' && digits > 1)) return false;
    text.remove_prefix(digits);
    out[count++] = value;
  }
  return true;
}

// The shape of a row, from the metadata that pyarrow writes or ours; false for any other.
bool read_shape(const IpcField& field, int64_t* dims, int& rank) {
  dims[0] = field.width;
  rank = 1;
  if (field.pairs.empty()) return true;
  if (field.pairs.size() != 2) return false;
  const int about = field.pairs[0].key == kAbout ? 0 : 1;
  if (field.pairs[1 - about].key != kName || field.pairs[1 - about].value != kTensor ||
      field.pairs[about].key != kAbout)
    return false;
  std::string_view text = field.pairs[about].value;
  int64_t order[kFastRank];
  int count;
  if (!take(text, R"({"shape":)") || !take_numbers(text, dims, rank)) return false;
  if (take(text, R"(,"permutation":)")) {
    if (!take_numbers(text, order, count) || count != rank) return false;
    for (int i = 0; i < count; i++)
      if (order[i] != i) return false;
  }
  int64_t product = 1;
  for (int i = 0; i < rank; i++)
    if (__builtin_mul_overflow(product, dims[i], &product)) return false;
  return text == "}" && product == field.width;
}

int64_t number_at(const IpcStructs& structs, size_t i) {
  int64_t value;
  std::memcpy(&value, structs.at + 8 * i, 8);
  return value;
}

class TableReader {
 public:
  TableReader(nb::handle object, bool copy) : object_(object), copy_(copy), in_(object) {}

  nb::object read() {
    if (!read_footer() || !read_batch()) return nb::none();
    nb::dict out;
    size_t columns = 0;
    for (size_t i = 0; i < footer_.schema.fields.size(); columns++) {
      const IpcField& field = footer_.schema.fields[i];
      nb::object array = column(i);
      if (!array.is_valid()) return nb::none();
      PyObject* name = PyUnicode_DecodeUTF8(field.name.data(),
                                            static_cast<Py_ssize_t>(field.name.size()), nullptr);
      if (!name) throw nb::python_error();
      out[nb::steal(name)] = array;
    }
    if (node_ != batch_.nodes.count || buffer_ != batch_.buffers.count || out.size() != columns)
      return nb::none();
    if (!lone_) return out;
    return columns == 1 && out.contains("tensor") ? nb::object(out["tensor"]) : nb::none();
  }

 private:
  bool read_footer() {
    const size_t size = in_.size();
    if (size < 18 || std::memcmp(in_.data(), "ARROW1", 6) ||
        std::memcmp(in_.data() + size - 6, "ARROW1", 6))
      return false;
    int32_t count;
    std::memcpy(&count, in_.data() + size - 10, 4);
    if (count <= 0 || static_cast<size_t>(count) > size - 18) return false;
    end_ = static_cast<int64_t>(size) - 10 - count;
    read_ipc_footer(in_.data() + end_, static_cast<size_t>(count), footer_);
    const IpcSchema& schema = footer_.schema;
    if (footer_.status != kOk || (footer_.version != 3 && footer_.version != 4) ||
        schema.endianness || footer_.dictionaries.count || footer_.batches.count != 1 ||
        schema.fields.size() > kMaxColumns || schema.pairs.size() > 16)
      return false;
    for (size_t i = 0; i < schema.pairs.size(); i++) {
      for (size_t j = 0; j < i; j++)
        if (schema.pairs[i].key == schema.pairs[j].key) return false;
      if (schema.pairs[i].key == kKey) {
        lone_ = true;
        if (schema.pairs[i].value != kLone) return false;
      }
    }
    return true;
  }

  bool read_batch() {
    int64_t offset, body;
    int32_t length, size;
    std::memcpy(&offset, footer_.batches.at, 8);
    std::memcpy(&length, footer_.batches.at + 8, 4);
    std::memcpy(&body, footer_.batches.at + 16, 8);
    if (offset < 8 || offset > end_ || length < 8 || body < 0 || body > end_ ||
        length > end_ - offset || body > end_ - offset - length)
      return false;
    const uint8_t* at = in_.data() + offset;
    std::memcpy(&size, at + 4, 4);
    if (std::memcmp(at, "\xff\xff\xff\xff", 4) || size <= 0 || size > length - 8) return false;
    read_ipc_message(at + 8, static_cast<size_t>(size), message_);
    batch_ = message_.batch;
    body_ = at + length;
    return message_.status == kOk && message_.kind == 3 && message_.body == body &&
           (message_.version == 3 || message_.version == 4) && batch_.codec < 0 &&
           !batch_.counts.count;
  }

  // The column that begins with field i, which then stands behind it; nothing if it is not plain.
  nb::object column(size_t& i) {
    const std::vector<IpcField>& fields = footer_.schema.fields;
    const IpcField& field = fields[i++];
    int64_t dims[kFastRank];
    int rank = 0;
    const IpcField* leaf = &field;
    int64_t per = 1;
    if (field.kind == kFixedList) {
      if (field.coded || field.children != 1 || field.width < 0 ||
          !read_shape(field, dims + 1, rank))
        return {};
      leaf = &fields[i++];
      per = field.width;
      if (!has_node(batch_.length, true)) return {};
      buffer_++;
    }
    const int type = numpy_type(*leaf);
    int64_t count;
    if (type == NPY_NOTYPE || __builtin_mul_overflow(batch_.length, per, &count) ||
        !has_node(count, leaf == &field))
      return {};
    dims[0] = batch_.length;
    int64_t bound = 16;
    for (int axis = 0; axis <= rank; axis++)
      if (__builtin_mul_overflow(bound, dims[axis] ? dims[axis] : 1, &bound)) return {};
    PyArray_Descr* descr = PyArray_DescrFromType(type);
    const nb::object kept = nb::steal(reinterpret_cast<PyObject*>(descr));
    const size_t size = static_cast<size_t>(count) * static_cast<size_t>(PyDataType_ELSIZE(descr));
    if (buffer_ + 2 > batch_.buffers.count ||
        static_cast<uint64_t>(number_at(batch_.buffers, 2 * buffer_ + 3)) < size)
      return {};
    const uint8_t* from = body_ + number_at(batch_.buffers, 2 * buffer_ + 2);
    buffer_ += 2;
    return take_array(object_, base_, descr, rank + 1, dims, from, size, copy_);
  }

  bool has_node(int64_t length, bool exactly) {
    if (node_ == batch_.nodes.count || buffer_ == batch_.buffers.count) return false;
    const int64_t found = number_at(batch_.nodes, 2 * node_),
                  nulls = number_at(batch_.nodes, 2 * node_ + 1);
    node_++;
    return !nulls && (exactly ? found == length : found >= length);
  }

  nb::handle object_;
  bool copy_;
  Buffer in_;
  nb::object base_;
  IpcFooter footer_;
  IpcMessage message_;
  IpcBatch batch_;
  const uint8_t* body_ = nullptr;
  int64_t end_ = 0;
  bool lone_ = false;
  size_t node_ = 0, buffer_ = 0;
};

nb::object decode_columns(nb::handle object, bool copy) { return TableReader(object, copy).read(); }

// The columns of a table in the making.
class TableWriter {
 public:
  bool add(std::string_view name, nb::handle object) {
    if (!PyArray_CheckExact(object.ptr())) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
    const int type = PyArray_TYPE(array), rank = PyArray_NDIM(array);
    if (!PyArray_ISCARRAY_RO(array) || rank < 1 || rank > kFastRank ||
        (type != NPY_HALF && (type <= NPY_BOOL || type > NPY_DOUBLE)))
      return false;
    const npy_intp* dims = PyArray_DIMS(array);
    if (!arrays_.empty() && dims[0] != rows_) return false;
    rows_ = dims[0];
    IpcField leaf;
    const auto item = static_cast<int>(PyArray_ITEMSIZE(array));
    const bool is_float = PyTypeNum_ISFLOAT(type);
    leaf.name = rank == 1 ? name : "item"sv;
    leaf.kind = is_float ? kFloat : kInt;
    leaf.width = is_float ? (item == 2 ? 0 : item == 4 ? 1 : 2) : 8 * item;
    leaf.is_signed = !is_float && PyTypeNum_ISSIGNED(type);
    if (rank > 1) {
      int64_t each = 1;
      std::string shape = R"({"shape":[)";
      for (int axis = 1; axis < rank; axis++) {
        if (__builtin_mul_overflow(each, dims[axis], &each)) return false;
        shape += (axis > 1 ? "," : "") + std::to_string(dims[axis]);
      }
      if (each > INT32_MAX) return false;
      IpcField list;
      list.name = name;
      list.kind = kFixedList;
      list.width = static_cast<int>(each);
      list.children = 1;
      list.pairs = {{kName, kTensor}, {kAbout, texts_.emplace_back(shape + "]}")}};
      schema_.fields.push_back(std::move(list));
      nodes_.push_back({rows_, 0});
      buffers_.push_back({body_, 0});
    }
    schema_.fields.push_back(std::move(leaf));
    nodes_.push_back({PyArray_SIZE(array), 0});
    buffers_.push_back({body_, 0});
    const int64_t size = PyArray_NBYTES(array);
    buffers_.push_back({body_, size});
    body_ += size + static_cast<int64_t>(padding(static_cast<size_t>(size), kAlign));
    total_ += size;
    arrays_.push_back(nb::borrow(object));
    return true;
  }

  bool add(nb::handle key, nb::handle object) {
    Py_ssize_t size;
    const char* name =
        PyUnicode_CheckExact(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr;
    if (name) return add({name, static_cast<size_t>(size)}, object);
    PyErr_Clear();  // a lone surrogate: the general way says so
    return false;
  }

  void metadata(std::string_view key, std::string_view value) {
    schema_.pairs.push_back({key, value});
  }

  nb::object file(size_t each) {
    if (arrays_.empty() || static_cast<size_t>(total_) > each * arrays_.size()) return nb::none();
    std::string head = "ARROW1\0\0"s;
    message(head, write_ipc_schema(schema_), 8);
    const size_t start = head.size();
    message(head, write_ipc_batch(rows_, nodes_, buffers_, -1, body_), kAlign);
    const std::string footer = write_ipc_footer(
        schema_, {{static_cast<int64_t>(start), static_cast<int32_t>(head.size() - start), body_}});
    const auto body = static_cast<size_t>(body_);
    uint8_t* out;
    nb::bytes result = new_bytes(head.size() + body + 8 + footer.size() + 10, out);
    unlocked(body, [&] {
      std::memcpy(out, head.data(), head.size());
      out += head.size();
      for (const nb::object& object : arrays_) {
        auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
        const auto size = static_cast<size_t>(PyArray_NBYTES(array));
        if (size) std::memcpy(out, PyArray_DATA(array), size);
        std::memset(out + size, 0, padding(size, kAlign));
        out += size + padding(size, kAlign);
      }
      std::memcpy(out, "\xff\xff\xff\xff\0\0\0\0", 8);
      std::memcpy(out + 8, footer.data(), footer.size());
      const auto size = static_cast<uint32_t>(footer.size());
      std::memcpy(out + 8 + footer.size(), &size, 4);
      std::memcpy(out + 12 + footer.size(), "ARROW1", 6);
      return 0;
    });
    return result;
  }

 private:
  static void message(std::string& out, const std::string& flatbuffer, size_t align) {
    const size_t size = flatbuffer.size() + padding(out.size() + 8 + flatbuffer.size(), align);
    const auto count = static_cast<uint32_t>(size);
    out.append("\xff\xff\xff\xff")
        .append(reinterpret_cast<const char*>(&count), 4)
        .append(flatbuffer);
    out.append(size - flatbuffer.size(), '\0');
  }

  IpcSchema schema_;
  std::deque<std::string> texts_;  // which the fields look at
  std::vector<IpcNumbers> nodes_, buffers_;
  std::vector<nb::object> arrays_;
  int64_t rows_ = 0, body_ = 0, total_ = 0;
};

// One array, or a dict of them that share their first dimension, as a file; None if it needs more
// words, or if there are more than `each` bytes a column, which are better not copied.
nb::object encode_columns(nb::handle value, size_t each) {
  TableWriter writer;
  if (!PyDict_CheckExact(value.ptr())) {
    writer.metadata(kKey, kLone);
    return writer.add("tensor"sv, value) ? writer.file(each) : nb::none();
  }
  PyObject *key, *item;
  Py_ssize_t position = 0;
  while (PyDict_Next(value.ptr(), &position, &key, &item))
    if (!writer.add(nb::handle(key), item)) return nb::none();
  return writer.file(each);
}

}  // namespace

void bind_arrow_table(nb::module_& m) {
  m.def("decode_columns", &decode_columns);
  m.def("encode_columns", &encode_columns, nb::arg("value").none(), nb::arg("each"));
}

}  // namespace tensorwire
