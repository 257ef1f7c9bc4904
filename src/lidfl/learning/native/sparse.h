// Softmax regression on images that are mostly background: x = background + deviations, and few deviations are not 0.
//
// With W as features × classes, W·x + bias = folded + Σ deviation_p · W_p over the inked features p alone, where
// folded = bias + Σ background_p · W_p is the same for all images. Back again, the gradient of W_p is
// background_p · Σ residuals + Σ deviation_p · residual. Both are exact to rounding, for any background.
#pragma once

#include "vectors.h"

namespace lidfl {

// Images as the features in which each differs from the background.
struct Inked {
    const int64_t* offsets;  // image i has entries offsets[i] … offsets[i + 1] − 1
    const int32_t* features;
    const float* deviations;
    const float* background;
    const int64_t* labels;  // may be null where nothing is trained
};

// Beyond this, sums could overflow on the way: such models are left to torch.
constexpr float LARGEST_WEIGHT = 1e15f;

// e^x for x ≤ 0 to a unit in the last place: x = n·ln 2 + r with |r| ≤ ln(2)/2, e^r by its series; 0 below e^−87.
inline Vector exponential(Vector x) {
    const Vector one = Vector{} + 1.0f, magic = Vector{} + 12582912.0f;  // 1.5·2²³: adding it rounds to whole numbers
    const Vector shifted = x * 1.44269504f + magic, n = shifted - magic;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
    Vector sum = one * (1.0f / 5040);
    for (const float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        sum = sum * r + coefficient;
    }
    const Ints exponent = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic)) << 23;
    const Vector power = reinterpret_cast<Vector>(reinterpret_cast<Ints>(sum) + exponent);
    return x < -87.0f ? Vector{} : power;
}

// One model, with a number of vectors for the classes that the compiler knows.
template <int WIDTH> class SoftmaxModel {
  public:
    static constexpr int STRIDE = WIDTH * LANES;

    SoftmaxModel(int inputs, int classes)
        : inputs_(inputs), classes_(classes), weights_(size_t(inputs + 1) * STRIDE), folded_(STRIDE) {}

    // From torch's order, (classes, inputs) and then the biases.
    void read(const float* vector, const float* background) {
        for (int p = 0; p < inputs_; p++)
            for (int c = 0; c < classes_; c++) weights_.data()[p * STRIDE + c] = vector[size_t(c) * inputs_ + p];
        std::copy(vector + size_t(classes_) * inputs_, vector + size_t(classes_) * (inputs_ + 1), bias());
        fold(background);
    }

    // Whether sums with these weights cannot overflow.
    bool is_safe() const { return largest_magnitude(weights_.data(), (inputs_ + 1) * STRIDE) <= LARGEST_WEIGHT; }

    void write_update(const float* start, float* update) const {
        for (int c = 0; c < classes_; c++)
            for (int p = 0; p < inputs_; p++) {
                const size_t place = size_t(c) * inputs_ + p;
                update[place] = weights_.data()[p * STRIDE + c] - start[place];
            }
        const size_t first = size_t(classes_) * inputs_;
        for (int c = 0; c < classes_; c++) update[first + c] = bias()[c] - start[first + c];
    }

    void logits(const Inked& data, int64_t image, Vector (&sums)[WIDTH]) const {
        for (int v = 0; v < WIDTH; v++) sums[v] = load(folded_.data() + v * LANES);
        for (int64_t e = data.offsets[image]; e < data.offsets[image + 1]; e++) {
            const float* row = weights_.data() + data.features[e] * STRIDE;
            for (int v = 0; v < WIDTH; v++) sums[v] += data.deviations[e] * load(row + v * LANES);
        }
    }

    int classes() const { return classes_; }

  protected:
    float* bias() { return weights_.data() + size_t(inputs_) * STRIDE; }
    const float* bias() const { return weights_.data() + size_t(inputs_) * STRIDE; }

    void fold(const float* background) {
        Vector sums[WIDTH];
        for (int v = 0; v < WIDTH; v++) sums[v] = load(bias() + v * LANES);
        for (int p = 0; p < inputs_; p++)
            for (int v = 0; v < WIDTH; v++) sums[v] += background[p] * load(weights_.data() + p * STRIDE + v * LANES);
        for (int v = 0; v < WIDTH; v++) store(folded_.data() + v * LANES, sums[v]);
    }

    int inputs_, classes_;
    Buffer<float> weights_;  // features × classes, the biases last
    Buffer<float> folded_;   // what the background and the biases come to
};

// SGD with momentum on one model.
template <int WIDTH> class SoftmaxTrainer : public SoftmaxModel<WIDTH> {
    using Base = SoftmaxModel<WIDTH>;
    using Base::STRIDE;

  public:
    SoftmaxTrainer(int inputs, int classes)
        : Base(inputs, classes), velocity_(this->weights_.size()), gradient_(this->weights_.size()) {}

    void start(const float* vector, const float* background) {
        this->read(vector, background);
        std::memset(velocity_.data(), 0, velocity_.size() * sizeof(float));
        std::memset(gradient_.data(), 0, gradient_.size() * sizeof(float));
    }

    void step(const Inked& data, const int64_t* rows, int count, float learning_rate, float momentum) {
        Vector total[WIDTH] = {};
        for (int i = 0; i < count; i++) {
            Vector residual[WIDTH];
            this->logits(data, rows[i], residual);
            residuals(residual, data.labels[rows[i]]);
            for (int v = 0; v < WIDTH; v++) total[v] += residual[v];
            for (int64_t e = data.offsets[rows[i]]; e < data.offsets[rows[i] + 1]; e++) {
                float* row = gradient_.data() + data.features[e] * STRIDE;
                for (int v = 0; v < WIDTH; v++) {
                    store(row + v * LANES, load(row + v * LANES) + data.deviations[e] * residual[v]);
                }
            }
        }
        descend(data.background, total, learning_rate / static_cast<float>(count), momentum);
    }

  private:
    // softmax(z) − y, in place; what fills up the last vector has no probability.
    void residuals(Vector (&z)[WIDTH], int64_t label) const {
        float filler[STRIDE];
        std::memcpy(filler, z, sizeof filler);
        std::fill(filler + this->classes_, filler + STRIDE, -INFINITY);
        std::memcpy(z, filler, sizeof filler);
        const Vector largest = Vector{} + *std::max_element(filler, filler + this->classes_);
        Vector sums = {};
        for (int v = 0; v < WIDTH; v++) {
            z[v] = exponential(z[v] - largest);
            sums += z[v];
        }
        const float scale = 1 / sum_lanes(sums);
        for (int v = 0; v < WIDTH; v++) z[v] *= scale;
        reinterpret_cast<float*>(z)[label] -= 1;
    }

    // v ← μv + ℓg, w ← w − v, and what the background comes to with the new weights.
    void descend(const float* background, const Vector (&total)[WIDTH], float rate, float momentum) {
        Vector folded[WIDTH] = {};
        for (int p = 0; p <= this->inputs_; p++) {
            const float constant = p < this->inputs_ ? background[p] : 1.0f;  // a bias is the weight of 1
            for (int v = 0; v < WIDTH; v++) {
                const size_t place = size_t(p) * STRIDE + v * LANES;
                float *const speed = velocity_.data() + place, *const slope = gradient_.data() + place;
                float* const weight = this->weights_.data() + place;
                const Vector faster = momentum * load(speed) + rate * (load(slope) + constant * total[v]);
                const Vector moved = load(weight) - faster;
                store(speed, faster);
                store(weight, moved);
                store(slope, Vector{});
                folded[v] += constant * moved;
            }
        }
        for (int v = 0; v < WIDTH; v++) store(this->folded_.data() + v * LANES, folded[v]);
    }

    Buffer<float> velocity_, gradient_;
};

// As many classes as a model may have here.
constexpr int MOST_CLASSES = 16 * LANES;

// Calls work with the number of vectors that so many classes fill, as a constant; false if they are too many.
template <class Work> bool with_width(int classes, Work work) {
    switch (rounded_up(classes, LANES) / LANES) {
    case 1: work(std::integral_constant<int, 1>()); return true;
    case 2: work(std::integral_constant<int, 2>()); return true;
    case 3: work(std::integral_constant<int, 3>()); return true;
    case 4: work(std::integral_constant<int, 4>()); return true;
    case 5: case 6: work(std::integral_constant<int, 6>()); return true;
    case 7: case 8: work(std::integral_constant<int, 8>()); return true;
    case 9: case 10: case 11: case 12: case 13: case 14: case 15: case 16:
        work(std::integral_constant<int, 16>());
        return true;
    default: return false;
    }
}

}  // namespace lidfl
