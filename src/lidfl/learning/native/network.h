// A network with its weights, what it remembers of a batch, and the steps of training that use both.
//
// Every loop that several threads share is cut so that each number is computed by one of them, in an order that does
// not depend on how many there are: the results are the same bits for any number of threads.
#pragma once

#include <memory>

#include "fourier.h"
#include "gradients.h"
#include "winograd.h"

namespace lidfl {

// The threads that work on one model, seen by one of them.
struct Team {
    int rank = 0, size = 1;

    int first(int count) const { return static_cast<int>(int64_t(count) * rank / size); }
    int last(int count) const { return static_cast<int>(int64_t(count) * (rank + 1) / size); }
    void wait() const {
        if (size > 1) {
#pragma omp barrier
        }
    }
};

constexpr float LARGEST_PIXEL = 1e6f;  // images with larger values are handed back to torch
constexpr double LARGEST_FLOAT = 1e38;

// A model's parameters in packed order, with what is derived from them after every step.
class Model {
  public:
    explicit Model(const Layers& shape) : layers(shape), packed(shape.packed) {
        for (const Convolution& layer : layers.convolutions) {
            const int taps = layer.kernel * layer.run, outputs = layer.outputs();
            turned.emplace_back(size_t(taps) * outputs);
            const size_t pairs = size_t(layer.in.stride) * outputs;
            points.emplace_back(layer.winograd ? POINTS * pairs : layer.fourier ? LINES * line_stride(pairs) : 0);
            norms.emplace_back(outputs);
            routes.emplace_back(layer);
        }
        for (const Linear& layer : layers.linears) turned_linears.emplace_back(size_t(layer.inputs) * layer.stride);
    }

    void derive(const Team& team, bool training) {
        for (size_t l = 0; l < layers.convolutions.size(); l++) {
            const Convolution& layer = layers.convolutions[l];
            const int taps = layer.kernel * layer.run;
            turn(layer, l, team.first(taps), team.last(taps));
            const float* w = packed.data() + layer.weights;
            for (int o = team.first(layer.outputs()); training && o < team.last(layer.outputs()); o++) {
                norms[l].data()[o] = weight_norm(layer, w + o * layer.weight_size());
            }
        }
        for (size_t l = first_to_go_back(); training && l < layers.linears.size(); l++) turn_linear(l, team);
        team.wait();
        for (size_t l = 0; l < layers.convolutions.size(); l++) {
            const Convolution& layer = layers.convolutions[l];
            if (!layer.winograd && !layer.fourier) continue;
            const int channels = layer.in.stride;
            const auto transform = layer.winograd ? transform_kernels : fourier_kernels;
            transform(layer, turned[l].data(), points[l].data(), team.first(channels), team.last(channels));
        }
        team.wait();
    }

    // Whether no value on the way through the network can overflow, whatever the image. Where one could, NaN might
    // come and go unseen (a maximum drops it), so such models are handed back to torch.
    bool is_safe() const {
        constexpr double GROWTH = 10000;  // of what is transformed, until it is back
        double reach = LARGEST_PIXEL;
        for (size_t l = 0; l < layers.convolutions.size(); l++) {
            const Convolution& layer = layers.convolutions[l];
            const int taps = layer.kernel * layer.run;
            const double weight = largest_magnitude(turned[l].data(), taps * layer.outputs());
            reach = reach * taps * weight + largest_magnitude(biases(layer), layer.outputs());
            if (!(reach * GROWTH < LARGEST_FLOAT)) return false;
        }
        for (const Linear& layer : layers.linears) {
            const double weight = largest_magnitude(packed.data() + layer.weights, layer.inputs * layer.stride);
            reach = reach * layer.inputs * weight;
            reach += largest_magnitude(packed.data() + layer.biases, layer.stride);
            if (!(reach < LARGEST_FLOAT)) return false;
        }
        return true;
    }

    // The first linear layer whose inputs want a gradient: nobody asks for that of the image.
    size_t first_to_go_back() const { return layers.convolutions.empty() ? 1 : 0; }

    const float* weights(const Convolution& layer) const { return packed.data() + layer.weights; }
    const float* biases(const Convolution& layer) const { return packed.data() + layer.biases; }

    const Layers layers;
    Buffer<float> packed;
    std::vector<Buffer<float>> turned;          // of convolutions: (row, column, channel, output)
    std::vector<Buffer<float>> points;          // of convolutions, transformed
    std::vector<Buffer<float>> norms;           // of each output's weights
    std::vector<Buffer<float>> turned_linears;  // (output, feature)
    std::vector<Routes> routes;

  private:
    void turn(const Convolution& layer, size_t l, int first, int last) {
        const int outputs = layer.outputs();
        for (int tap = first; tap < last; tap++) {
            const float* from = weights(layer) + (tap / layer.run) * layer.row_stride + tap % layer.run;
            float* to = turned[l].data() + tap * outputs;
            for (int o = 0; o < outputs; o++) to[o] = from[o * layer.weight_size()];
        }
    }

    void turn_linear(size_t l, const Team& team) {
        const Linear& layer = layers.linears[l];
        constexpr int BLOCK = 16;
        const int blocks = (layer.inputs + BLOCK - 1) / BLOCK;
        const float* w = packed.data() + layer.weights;
        float* to = turned_linears[l].data();
        for (int block = team.first(blocks); block < team.last(blocks); block++) {
            const int first = block * BLOCK, last = std::min(first + BLOCK, layer.inputs);
            for (int o = 0; o < layer.outputs; o++)
                for (int f = first; f < last; f++) to[o * layer.inputs + f] = w[f * layer.stride + o];
        }
    }
};

// What one thread needs for itself, to work on so many images at a time.
class Scratch {
  public:
    Scratch(const Layers& layers, int images) {
        size_t inputs = 0, outputs = 0, lists = 0, cells = 0;
        size_t lines_in = 0, lines_out = 0;
        int longest = 0;
        for (const Convolution& layer : layers.convolutions) {
            const size_t tiles = std::min(layer.cells(), MOST_TILES), here = layer.cells();
            if (layer.winograd) {
                inputs = std::max(inputs, POINTS * tiles * layer.in.stride);
                outputs = std::max(outputs, POINTS * tiles * layer.outputs());
            }
            if (layer.fourier) {
                lines_in = std::max(lines_in, line_stride(size_t(images) * layer.in.stride));
                lines_out = std::max(lines_out, line_stride(size_t(images) * layer.outputs()));
            }
            longest = std::max(longest, layer.outputs());
            lists = std::max(lists, 5 * here * layer.outputs());
            cells = std::max(cells, here);
        }
        winograd.inputs = Buffer<float>(inputs);
        winograd.outputs = Buffer<float>(outputs);
        fourier.inputs = Buffer<float>(LINES * lines_in);
        fourier.outputs = Buffer<float>(LINES * lines_out);
        unsure = Buffer<uint8_t>(cells * longest);
        tolerances = Buffer<float>(longest);
        by_position.multiples.resize(lists);
        by_position.counts.resize(4 * cells);
        by_output.resize(cells + 1);
    }

    WinogradScratch winograd;
    FourierScratch fourier;
    Buffer<uint8_t> unsure;    // (cell, output)
    Buffer<float> tolerances;  // of each output
    PositionLists by_position;
    std::vector<Multiple> by_output;
};

// The values of some images on their way through the network, and their gradients on the way back.
class Batch {
  public:
    Batch(const Layers& layers, int size, bool training) {
        const auto& convolutions = layers.convolutions;
        images.emplace_back(size_t(size) * image_size(layers.input));
        for (const Convolution& layer : convolutions) {
            images.emplace_back(size_t(size) * image_size(layer.out));
            picks.emplace_back(training ? size_t(size) * layer.cells() * layer.outputs() : 0);
        }
        gradients.emplace_back(0);  // nobody asks for the gradient of the input
        for (const Convolution& layer : convolutions) {
            gradients.emplace_back(training ? size_t(size) * image_size(layer.out) : 0);
        }
        for (const Linear& layer : layers.linears) {
            outputs.emplace_back(size_t(size) * layer.stride);
            output_gradients.emplace_back(training ? size_t(size) * layer.stride : 0);
        }
    }

    static size_t image_size(const Shape& shape) { return shape.size(); }

    // What convolution l reads of one image.
    const float* image(size_t l, int slot, const Shape& shape) const {
        return images[l].data() + size_t(slot) * shape.size();
    }

    std::vector<Buffer<float>> images;     // the input, then what each convolution gives
    std::vector<Buffer<float>> gradients;  // of the same
    std::vector<Buffer<uint8_t>> picks;    // of each convolution: which position each cell's value is from
    std::vector<Buffer<float>> outputs;    // of each linear layer
    std::vector<Buffer<float>> output_gradients;
};

// One image, channel by channel as torch has it, into the batch's order and border.
inline void read_image(const Shape& shape, const float* from, float* to) {
    for (int c = 0; c < shape.channels; c++) {
        for (int y = 0; y < shape.height; y++, from += shape.width) {
            float* row = to + shape.at(y, 0) + c;
            if (shape.stride == 1) {
                std::memcpy(row, from, shape.width * sizeof(float));
            } else {
                for (int x = 0; x < shape.width; x++) row[x * shape.stride] = from[x];
            }
        }
    }
}

// Where the outputs of one image go.
inline Target target_of(const Model& model, Batch& batch, size_t l, int slot, Scratch& scratch, bool training) {
    const Convolution& layer = model.layers.convolutions[l];
    Target to{batch.images[l + 1].data() + size_t(slot) * layer.out.size()};
    if (training) {
        to.picks = batch.picks[l].data() + size_t(slot) * layer.cells() * layer.outputs();
        to.unsure = scratch.unsure.data();
        to.tolerances = scratch.tolerances.data();
        write_tolerances(layer, batch.image(l, slot, layer.in), model.norms[l].data(), scratch.tolerances.data());
    }
    return to;
}

// The products of some images with one layer's weights, all transformed: each line of weights is read once for all.
inline void multiply_transforms(const Model& model, const Batch& batch, size_t l, int first, int count,
                                FourierScratch& scratch) {
    const Convolution& layer = model.layers.convolutions[l];
    const size_t stride = line_stride(size_t(count) * layer.in.stride);
    for (int n = 0; n < count; n++) {
        read_fourier(layer, batch.image(l, first + n, layer.in), scratch.inputs.data() + n * layer.in.stride, stride);
    }
    multiply_lines(layer, count, model.points[l].data(), scratch);
}

inline void forward_convolution(const Model& model, Batch& batch, size_t l, int first, int count, Scratch& scratch,
                                bool training) {
    const Convolution& layer = model.layers.convolutions[l];
    const float* bias = model.biases(layer);
    const size_t stride = line_stride(size_t(count) * layer.outputs());
    if (layer.fourier) multiply_transforms(model, batch, l, first, count, scratch.fourier);
    for (int n = 0; n < count; n++) {
        const float* image = batch.image(l, first + n, layer.in);
        const Target to = target_of(model, batch, l, first + n, scratch, training);
        if (layer.fourier) {
            write_fourier(layer, bias, scratch.fourier.outputs.data() + n * layer.outputs(), stride, to);
        } else if (layer.winograd) {
            convolve_winograd(layer, image, model.points[l].data(), bias, scratch.winograd, to);
        } else {
            convolve(layer, image, model.turned[l].data(), bias, to);
        }
        if (training) settle_image(layer, image, model.weights(layer), bias, to);
    }
}

inline void forward_convolutions(const Model& model, Batch& batch, int first, int count, Scratch& scratch,
                                 bool training) {
    for (size_t l = 0; l < model.layers.convolutions.size(); l++) {
        forward_convolution(model, batch, l, first, count, scratch, training);
    }
}

// What a linear layer reads: the images' features, or what the layer before gave.
inline float* linear_inputs(Batch& batch, size_t l) {
    return l == 0 ? batch.images.back().data() : batch.outputs[l - 1].data();
}

inline void forward_linears(const Model& model, Batch& batch, int first, int count) {
    for (size_t l = 0; l < model.layers.linears.size(); l++) {
        const Linear& layer = model.layers.linears[l];
        const float* w = model.packed.data() + layer.weights;
        const float* bias = model.packed.data() + layer.biases;
        const Matrix in{linear_inputs(batch, l) + size_t(first) * layer.inputs, layer.inputs};
        float* out = batch.outputs[l].data() + size_t(first) * layer.stride;
        multiply(count, layer.stride, layer.inputs, in, w, layer.stride, out, layer.stride, false);
        for (int n = 0; n < count; n++, out += layer.stride)
            for (int o = 0; o < layer.stride; o++) {
                out[o] += bias[o];
                if (layer.relu && !(out[o] > 0)) out[o] = 0;
            }
    }
}

// The gradient of the mean cross-entropy: (softmax(z) − e_label) / batch.
inline void loss_gradient(const Linear& layer, const float* z, int label, int batch_size, float* gradient) {
    const float largest = *std::max_element(z, z + layer.outputs);
    double sum = 0;
    for (int o = 0; o < layer.outputs; o++) {
        gradient[o] = std::exp(z[o] - largest);
        sum += gradient[o];
    }
    const double scale = 1 / (sum * batch_size);
    for (int o = 0; o < layer.outputs; o++) gradient[o] = static_cast<float>(gradient[o] * scale);
    gradient[label] -= 1.0f / static_cast<float>(batch_size);
}

// dx = dz · Wᵀ through all linear layers, to the features of convolutions.
inline void backward_linears(const Model& model, Batch& batch, int first, int count) {
    for (size_t l = model.layers.linears.size(); l-- > model.first_to_go_back();) {
        const Linear& layer = model.layers.linears[l];
        const Matrix from{batch.output_gradients[l].data() + size_t(first) * layer.stride, layer.stride};
        float* to = (l == 0 ? batch.gradients.back().data() : batch.output_gradients[l - 1].data());
        to += size_t(first) * layer.inputs;
        multiply(count, layer.inputs, layer.outputs, from, model.turned_linears[l].data(), layer.inputs, to,
                 layer.inputs, false);
        if (l == 0 || !model.layers.linears[l - 1].relu) continue;
        const float* values = linear_inputs(batch, l) + size_t(first) * layer.inputs;
        for (int i = 0; i < count * layer.inputs; i++) to[i] = values[i] > 0 ? to[i] : 0;
    }
}

inline void backward_convolutions(const Model& model, Batch& batch, int slot, Scratch& scratch) {
    for (size_t l = model.layers.convolutions.size(); l-- > 0;) {
        const Convolution& layer = model.layers.convolutions[l];
        float* gradient = batch.gradients[l + 1].data() + size_t(slot) * layer.out.size();
        const uint8_t* picks = batch.picks[l].data() + size_t(slot) * layer.cells() * layer.outputs();
        if (layer.relu) drop_dead(layer, picks, gradient);
        if (l == 0) return;
        scratch.by_position.stride = layer.outputs();
        input_gradient(layer, model.routes[l], model.weights(layer), gradient, picks, scratch.by_position,
                       batch.gradients[l].data() + size_t(slot) * layer.in.size());
    }
}

// The weights' gradients of `count` images; each thread has some of the weights, for all images.
inline void convolution_gradients(const Model& model, Batch& batch, int count, const Team& team, Scratch& scratch,
                                  float* gradient) {
    for (size_t l = 0; l < model.layers.convolutions.size(); l++) {
        const Convolution& layer = model.layers.convolutions[l];
        const int size = layer.weight_size(), vectors = layer.outputs() / LANES;
        for (int n = 0; n < count; n++) {
            const float* image = batch.images[l].data() + size_t(n) * layer.in.size();
            const float* from = batch.gradients[l + 1].data() + size_t(n) * layer.out.size();
            const uint8_t* picks = batch.picks[l].data() + size_t(n) * layer.cells() * layer.outputs();
            for (int o = team.first(layer.out.channels); o < team.last(layer.out.channels); o++) {
                add_weight_gradient(layer, model.routes[l], image, from, picks, o, scratch.by_output.data(),
                                    gradient + layer.weights + o * size);
            }
            for (int v = team.first(vectors); v < team.last(vectors); v++) {
                float* bias = gradient + layer.biases + v * LANES;
                store(bias, load(bias) + sum_cells(layer, from, v * LANES));
            }
        }
    }
}

// dW = xᵀ·dz: each thread has some of the features.
inline void linear_gradients(const Model& model, Batch& batch, int count, const Team& team, float* gradient) {
    for (size_t l = 0; l < model.layers.linears.size(); l++) {
        const Linear& layer = model.layers.linears[l];
        const int first = team.first(layer.inputs), rows = team.last(layer.inputs) - first;
        const float* from = batch.output_gradients[l].data();
        const Matrix turned{linear_inputs(batch, l) + first, layer.inputs, true};
        multiply(rows, layer.stride, count, turned, from, layer.stride,
                 gradient + layer.weights + size_t(first) * layer.stride, layer.stride, true);
        if (team.rank > 0) continue;
        for (int n = 0; n < count; n++)
            for (int o = 0; o < layer.stride; o++) gradient[layer.biases + o] += from[n * layer.stride + o];
    }
}

}  // namespace lidfl
