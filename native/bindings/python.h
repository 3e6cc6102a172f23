// What every binding needs: borrowed buffers, fresh bytes and arrays, and work without the GIL.
#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL tensorwire_numpy
#ifndef TENSORWIRE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tensorwire {

namespace nb = nanobind;

constexpr size_t kRelease = 16 << 10;  // below this, giving up the GIL costs more than the work
constexpr size_t kTiny = 256;      // a view keeps the whole input alive: not worth it for so little
constexpr int kFastRank = 32;      // what every NumPy can hold; more goes the general way
constexpr size_t kHuge = 4 << 20;  // from here on, huge pages are worth a system call

// A borrowed view of anything with the buffer protocol.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Buffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// Runs `work` without the GIL when it is long enough to be worth it.
template <class Work>
auto unlocked(size_t bytes, Work&& work) {
  if (bytes < kRelease) return work();
  nb::gil_scoped_release release;
  return work();
}

// Fresh `bytes` of half a gigabyte cost more in page faults than in copying; huge pages halve that.
inline nb::bytes new_bytes(size_t size, uint8_t*& data) {
  PyObject* object = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (!object) throw nb::python_error();
  data = reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(object));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (size >= kHuge) {
    const uintptr_t page = 4096,
                    from = (reinterpret_cast<uintptr_t>(data) + page - 1) & ~(page - 1);
    const uintptr_t to = (reinterpret_cast<uintptr_t>(data) + size) & ~(page - 1);
    madvise(reinterpret_cast<void*>(from), to - from,
            MADV_HUGEPAGE);  // advice: failure changes nothing
  }
#endif
  return nb::steal<nb::bytes>(object);
}

template <class T>
nb::object new_array(int type, size_t n, T*& data) {
  npy_intp dims[1] = {static_cast<npy_intp>(n)};
  PyObject* array = PyArray_SimpleNew(1, dims, type);
  if (!array) throw nb::python_error();
  data = static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  return nb::steal<nb::object>(array);
}

inline PyArrayObject* as_array(nb::handle object, int type, const char* what) {
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  if (!PyArray_Check(object.ptr()) || PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) ||
      PyArray_NDIM(array) != 1)
    throw nb::type_error(what);
  return array;
}

// An array by the memory rules: with `copy` a writable one of the caller's own, else read-only, a
// view of `from` (kept alive by `base`, which is made when it is first needed) where it is aligned
// and not tiny.
inline nb::object take_array(nb::handle owner, nb::object& base, PyArray_Descr* descr, int rank,
                             const int64_t* shape, const uint8_t* from, size_t size, bool copy) {
  npy_intp dims[kFastRank];
  for (int i = 0; i < rank; i++) dims[i] = shape[i];
  Py_INCREF(descr);  // PyArray_NewFromDescr takes one
  const size_t align = static_cast<size_t>(PyDataType_ALIGNMENT(descr));
  if (!copy && size > kTiny && reinterpret_cast<uintptr_t>(from) % align == 0) {
    if (!base.is_valid())
      base = PyBytes_CheckExact(owner.ptr()) ? nb::borrow(owner)
                                             : nb::steal(PyMemoryView_FromObject(owner.ptr()));
    if (!base.is_valid()) {
      Py_DECREF(descr);
      throw nb::python_error();
    }
    PyObject* array =
        PyArray_NewFromDescr(&PyArray_Type, descr, rank, dims, nullptr, const_cast<uint8_t*>(from),
                             NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, nullptr);
    if (!array) throw nb::python_error();
    nb::object result = nb::steal<nb::object>(array);
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array),
                              nb::object(base).release().ptr()) != 0)
      throw nb::python_error();
    return result;
  }
  PyObject* array =
      PyArray_NewFromDescr(&PyArray_Type, descr, rank, dims, nullptr, nullptr, 0, nullptr);
  if (!array) throw nb::python_error();
  nb::object result = nb::steal<nb::object>(array);
  void* to = PyArray_DATA(reinterpret_cast<PyArrayObject*>(array));
  unlocked(size, [&] {
    if (size) std::memcpy(to, from, size);
    return 0;
  });
  if (!copy) PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_WRITEABLE);
  return result;
}

// What each file of bindings adds to the module.
void bind_arrow_ipc(nb::module_& m);
void bind_arrow_table(nb::module_& m);
void bind_json(nb::module_& m);
void bind_records(nb::module_& m);
void bind_shuffle(nb::module_& m);
void bind_snappy(nb::module_& m);
void bind_table(nb::module_& m);

}  // namespace tensorwire
