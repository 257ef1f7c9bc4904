// Vectors of floats as wide as the processor has them, by the compiler's own vector types: one source for AVX-512,
// AVX2 and plain SSE or NEON.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace lidfl {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int REGISTERS = 32;
#elif defined(__AVX__)
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
#else
constexpr int LANES = 4;
constexpr int REGISTERS = 16;
#endif

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));
#if defined(__AVX__)
typedef float Narrow __attribute__((vector_size(32)));  // for rows that would leave most of a wider vector empty
constexpr int NARROW = 8;
#else
typedef Vector Narrow;
constexpr int NARROW = LANES;
#endif

// The same types where memory holds them at any address.
template <class V> struct Unaligned;
template <> struct Unaligned<Vector> {
    typedef float type __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
};
#if defined(__AVX512F__)
template <> struct Unaligned<Narrow> {
    typedef float type __attribute__((vector_size(32), aligned(4), may_alias));
};
#endif

template <class V = Vector> inline V load(const float* from) {
    return *reinterpret_cast<const typename Unaligned<V>::type*>(from);
}

template <class V> inline void store(float* to, V value) {
    *reinterpret_cast<typename Unaligned<V>::type*>(to) = value;
}

inline void store_bytes(uint8_t* to, Ints values) {
#if defined(__AVX2__) && !defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
    // GCC's own conversion is slow here: take each number's lowest byte, in both halves of the register.
    typedef int8_t Wide __attribute__((vector_size(32)));
    const Wide lowest = {0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 20, 24, 28};
    const Wide halves = __builtin_shuffle(reinterpret_cast<Wide>(values), lowest);
    std::memcpy(to, &halves, 4);
    std::memcpy(to + 4, reinterpret_cast<const char*>(&halves) + 16, 4);
#else
    const Bytes narrow = __builtin_convertvector(values, Bytes);
    std::memcpy(to, &narrow, sizeof narrow);
#endif
}

inline Ints load_bytes(const uint8_t* from) {
    Bytes narrow;
    std::memcpy(&narrow, from, sizeof narrow);
    return __builtin_convertvector(narrow, Ints);
}

inline float sum_lanes(Vector values) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += values[lane];
    return sum;
}

// The largest magnitude; NaN if one of the values is not finite.
inline float largest_magnitude(const float* values, int size) {
    Vector largest = {}, poison = {};
    int i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Vector value = load(values + i), magnitude = value < 0 ? -value : value;
        largest = magnitude > largest ? magnitude : largest;
        poison += 0.0f * value;
    }
    float result = 0, rest = sum_lanes(poison);
    for (int lane = 0; lane < LANES; lane++) result = std::max(result, largest[lane]);
    for (; i < size; i++) {
        result = std::max(result, std::fabs(values[i]));
        rest += 0.0f * values[i];
    }
    return result + rest;
}

inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }
inline Vector smaller(Vector a, Vector b) { return a < b ? a : b; }

constexpr int rounded_up(int size, int to) { return (size + to - 1) / to * to; }

// Memory that starts on a cache line: vectors that straddle two lines cost about a tenth of the speed. Zero at first.
template <class T> class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t size) : size_(size) {
        const size_t bytes = (size * sizeof(T) + 255) / 128 * 128;  // some room behind, for whole-vector reads
        data_ = static_cast<T*>(std::aligned_alloc(128, bytes));
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(static_cast<void*>(data_), 0, bytes);
    }
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }

  private:
    T* data_ = nullptr;
    size_t size_ = 0;
};

// Whether denormal numbers count as 0 is a setting of each thread; worker threads take over the caller's.
#if defined(__SSE__)
inline unsigned float_mode() { return _mm_getcsr() & ~0x3fu; }  // without the flags of past exceptions
inline void set_float_mode(unsigned mode) { _mm_setcsr(mode); }
#else
inline unsigned float_mode() { return 0; }
inline void set_float_mode(unsigned) {}
#endif

}  // namespace lidfl
