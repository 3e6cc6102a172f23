// JSON numbers between text and arrays.
#include "json_numbers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "protobuf.h"
#include "python.h"

namespace tensorwire {
namespace {

JsonKind kind_of(int kind) {
  if (kind < 0 || kind >= kJsonKinds) throw nb::value_error("no such kind of numbers");
  return static_cast<JsonKind>(kind);
}

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes json_write_numbers(nb::bytes before, nb::handle values, int code, nb::tuple levels,
                             bool bare, int indent, size_t margin, nb::bytes after) {
  const JsonKind kind = kind_of(code);
  Buffer in(values);
  JsonLayout layout;
  layout.bare = bare;
  layout.indent = indent;
  layout.margin = margin;
  if (indent > 1 << 16 || margin > 1 << 24) throw nb::value_error("indented too far");
  for (nb::handle level : levels) {
    if (PyLong_Check(level.ptr())) {
      layout.levels.push_back({nullptr, 0, nb::cast<size_t>(level)});
    } else {
      PyArrayObject* splits = as_array(level, NPY_INT64, "levels are lengths or int64 row_splits");
      layout.levels.push_back({static_cast<const int64_t*>(PyArray_DATA(splits)),
                               static_cast<size_t>(PyArray_SIZE(splits)), 0});
    }
  }
  const size_t width = json_width(kind), count = in.size() / width,
               room = in.size() % width ? SIZE_MAX : json_room(kind, count, layout);
  const std::string_view first = view_of(before), last = view_of(after);
  if (room > PY_SSIZE_T_MAX / 2) throw nb::value_error("the levels do not fit the values");
  const auto write = [&](uint8_t* out) {
    return unlocked(in.size(), [&] {
      if (!first.empty()) std::memcpy(out, first.data(), first.size());
      const JsonWritten found =
          write_json(kind, in.data(), count, layout, out + first.size(), room);
      if (!last.empty()) std::memcpy(out + first.size() + found.size, last.data(), last.size());
      return found;
    });
  };
  const auto size_of = [&](const JsonWritten& written) {
    if (written.status != kOk) throw nb::value_error("the levels do not fit the values");
    return first.size() + written.size + last.size();
  };
  const size_t most = first.size() + room + last.size();
  uint8_t* out;
  if (most < kHuge) {  // memory that is given back whole is used again; what is left of a larger
                       // piece would be new, and new pages cost more than copying
    const std::unique_ptr<uint8_t, void (*)(void*)> draft(static_cast<uint8_t*>(std::malloc(most)),
                                                          std::free);
    if (!draft) throw std::bad_alloc();
    const size_t size = size_of(write(draft.get()));
    nb::bytes text = new_bytes(size, out);
    std::memcpy(out, draft.get(), size);
    return text;
  }
  nb::bytes text = new_bytes(most, out);
  const size_t size = size_of(write(out));
  PyObject* object =
      text.release()
          .ptr();  // what was not needed goes back; memory that was not touched never came
  if (_PyBytes_Resize(&object, static_cast<Py_ssize_t>(size)) != 0) throw nb::python_error();
  return nb::steal<nb::bytes>(object);
}

// The values as an array that frees them. Memory that was never touched costs nothing, and is used
// again more readily when it is given back whole.
nb::object adopt(const JsonArray& found, size_t width) {
  uint8_t* values = found.values;
  const size_t size = found.count * width;
  if (found.room > 2 * found.count || !values)
    if (auto* fitting = static_cast<uint8_t*>(std::realloc(values, size ? size : 1)))
      values = fitting;
  if (!values) throw std::bad_alloc();
  PyObject* owner = PyCapsule_New(values, nullptr, [](PyObject* capsule) {
    std::free(PyCapsule_GetPointer(capsule, nullptr));
  });
  if (!owner) {
    std::free(values);
    throw nb::python_error();
  }
  npy_intp dims[1] = {static_cast<npy_intp>(size)};
  PyObject* array = PyArray_SimpleNewFromData(1, dims, NPY_UINT8, values);
  if (!array || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner) !=
                    0) {  // which takes the owner in any case
    if (!array) Py_DECREF(owner);
    Py_XDECREF(array);
    throw nb::python_error();
  }
  return nb::steal(array);
}

nb::tuple failed(const JsonOutcome& o) {
  return nb::make_tuple(o.status, o.offset, 0, nb::tuple(), nb::none(), nb::list());
}

nb::tuple read_shape(const Buffer& in, size_t at, JsonKind kind, nb::tuple shape, size_t most) {
  size_t dims[kMaxJsonRank], count = 1;
  if (shape.size() > kMaxJsonRank) throw nb::value_error("more dims than NumPy has");
  for (size_t i = 0; i < shape.size(); i++) {
    dims[i] = nb::cast<size_t>(shape[i]);
    if (__builtin_mul_overflow(count, dims[i], &count)) count = SIZE_MAX;
    if (dims[i] == 0) throw nb::value_error("an array of nothing has no numbers to read");
  }
  if (count > (in.size() - at) / 2 + 1)
    return failed({kWrongShape, at, 0});  // a number and a comma take two bytes
  if (count > most) return failed({kOverLimit, at, 0});
  uint8_t* out;
  nb::object values = new_array(NPY_UINT8, count * json_width(kind), out);
  const int rank = static_cast<int>(shape.size());
  const JsonOutcome o = unlocked(in.size() - at, [&] {
    return read_json_shape(in.data(), in.size(), at, kind, dims, rank, out);
  });
  if (o.status != kOk) return failed(o);
  return nb::make_tuple(o.status, o.offset, o.end, shape, values, nb::list());
}

nb::tuple json_read_numbers(nb::handle text, size_t at, int code, nb::object shape, bool ragged,
                            size_t most) {
  const JsonKind kind = kind_of(code);
  Buffer in(text);
  if (at > in.size()) throw nb::value_error("at is past the end");
  if (!shape.is_none()) return read_shape(in, at, kind, nb::cast<nb::tuple>(shape), most);
  JsonArray found;
  const JsonOutcome o = unlocked(in.size() - at, [&] {
    return read_json_any(in.data(), in.size(), at, kind, ragged, most, found);
  });
  if (o.status != kOk) {
    std::free(found.values);
    return failed(o);
  }
  nb::object values = adopt(found, json_width(kind));
  nb::list dims, splits;
  for (int i = 0; i < (ragged ? std::min(found.rank, 1) : found.rank); i++)
    dims.append(found.dims[i]);
  for (int i = 1; ragged && i < found.rank; i++) {
    std::vector<int64_t>& from = found.splits[i];
    if (from.empty()) from.push_back(0);
    int64_t* to;
    splits.append(new_array(NPY_INT64, from.size(), to));
    std::memcpy(to, from.data(), from.size() * sizeof(int64_t));
  }
  return nb::make_tuple(o.status, o.offset, o.end, nb::tuple(dims), values, splits);
}

nb::tuple json_skip(nb::handle text, size_t at, int most_depth, bool past_dollars) {
  Buffer in(text);
  if (at > in.size()) throw nb::value_error("at is past the end");
  const JsonSkipped s = unlocked(in.size() - at, [&] {
    return skip_json(in.data(), in.size(), at, most_depth, past_dollars);
  });
  return nb::make_tuple(s.status, s.offset, s.depth, s.dollar);
}

}  // namespace

void bind_json(nb::module_& m) {
  m.def("json_write_numbers", &json_write_numbers);
  m.def("json_read_numbers", &json_read_numbers, nb::arg("text"), nb::arg("at"), nb::arg("kind"),
        nb::arg("shape").none(), nb::arg("ragged"), nb::arg("most"));
  m.def("json_skip", &json_skip);
}

}  // namespace tensorwire
