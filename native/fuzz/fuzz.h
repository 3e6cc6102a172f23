// What the fuzz targets share: checks that say what they wanted, buffers of exactly the promised
// size, and numbers from the input.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// A property that holds for every input. It must not depend on NDEBUG, as assert does.
#define CHECK(condition) ((condition) ? void() : fuzz::failed(#condition, __FILE__, __LINE__))

namespace fuzz {

[[noreturn]] inline void failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

// On the heap and exactly `size` long, so that ASan sees the first byte past it; never null, as a
// kernel's buffers never are. What the kernel leaves alone keeps `fill`: two runs with different
// fills that agree have stored every byte that they compare.
template <class T>
class Exact {
 public:
  explicit Exact(size_t size, uint8_t fill = 0xa5) : size_(size), items_(new T[size]) {
    std::memset(items_.get(), fill, size * sizeof(T));
  }
  Exact(const T* from, size_t size) : size_(size), items_(new T[size]) {
    if (size) std::memcpy(items_.get(), from, size * sizeof(T));
  }
  T* data() { return items_.get(); }
  const T* data() const { return items_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }

 private:
  size_t size_;
  std::unique_ptr<T[]> items_;
};

// Takes little-endian numbers off the front of an input, and zeros when it is used up, so that
// every input means something.
struct Source {
  const uint8_t* at;
  size_t left;

  template <class T>
  T take() {
    T value = 0;
    const size_t n = left < sizeof(T) ? left : sizeof(T);
    if (n) std::memcpy(&value, at, n);
    at += n;
    left -= n;
    return value;
  }
};

}  // namespace fuzz
