// The shape of a network: convolutions (each with max-pooling and ReLU or without), if any, then linear layers.
//
// Images lie in memory as (row, column, channel), with the border of zeros that the next convolution wants around
// them: a kernel's row then meets `kernel × channels` floats in one piece. Channels are filled up to whole vectors with
// zeros, except those of the input. All parameters form one packed vector:
//
//   convolution: weights (output, kernel row, kernel column × channel), each row filled up to whole vectors; biases
//   linear:      weights (feature, output), features in the order in which images lie in memory; biases
#pragma once

#include <stdexcept>
#include <vector>

#include "vectors.h"

namespace lidfl {

constexpr int RING = 14;  // the width and height, border included, of images that are convolved by Fourier's transform

// Images of one shape: what a convolution reads and writes.
struct Shape {
    int channels = 0, stride = 0;  // real channels, and those that memory has
    int height = 0, width = 0;     // without the border
    int pad_y = 0, pad_x = 0;

    int row() const { return (width + 2 * pad_x) * stride; }
    int size() const { return (height + 2 * pad_y) * row(); }
    int at(int y, int x) const { return (y + pad_y) * row() + (x + pad_x) * stride; }
};

struct Convolution {
    int kernel = 0;
    bool pool = false, relu = false;
    Shape in, out;
    int run = 0;         // floats that one kernel row meets: kernel × channels
    int row_stride = 0;  // the same, filled up to whole vectors
    int weights = 0, biases = 0;  // where they start in the packed vector
    int original = 0;             // where they start in torch's vector: (output, channel, row, column), biases
    bool winograd = false, fourier = false;  // how it is computed; by its definition if neither

    int weight_size() const { return kernel * row_stride; }  // of one output
    int outputs() const { return out.stride; }
    int cells() const { return out.height * out.width; }
};

struct Linear {
    int inputs = 0, outputs = 0, stride = 0;  // the stride is the outputs, filled up
    bool relu = false;
    int weights = 0, biases = 0, original = 0;
};

struct Layers {
    std::vector<Convolution> convolutions;
    std::vector<Linear> linears;
    Shape input;
    int packed = 0;      // length of the packed vector
    int parameters = 0;  // length of torch's vector

    const Shape& features() const { return convolutions.empty() ? input : convolutions.back().out; }
    int classes() const { return linears.back().outputs; }
    int pixels() const { return input.channels * input.height * input.width; }
};

// What a kernel row of the weights is filled up to: whole vectors, or a narrow one if that is enough.
inline int row_size(int kernel, int run) {
    return kernel == 5 && run <= NARROW ? NARROW : rounded_up(run, LANES);
}

inline void add_convolution(Layers& layers, Shape in, const int32_t* spec) {
    Convolution layer;
    const int outputs = spec[1];
    layer.kernel = spec[2];
    layer.pool = spec[5] != 0;
    layer.relu = spec[6] != 0;
    in.pad_y = spec[3];
    in.pad_x = spec[4];
    layer.in = in;
    const int shrink = layer.pool ? 2 : 1;
    layer.out.channels = outputs;
    layer.out.stride = rounded_up(outputs, LANES);
    layer.out.height = (in.height + 2 * in.pad_y - layer.kernel + 1) / shrink;
    layer.out.width = (in.width + 2 * in.pad_x - layer.kernel + 1) / shrink;
    if (layer.out.height < 1 || layer.out.width < 1) throw std::invalid_argument("an image smaller than the kernel");
    layer.run = layer.kernel * in.stride;
    layer.row_stride = row_size(layer.kernel, layer.run);
    const bool is_fast = layer.kernel == 5 && layer.pool && in.stride % LANES == 0;
    layer.fourier = is_fast && in.height + 2 * in.pad_y == RING && in.width + 2 * in.pad_x == RING;
    layer.winograd = is_fast && !layer.fourier;
    layer.original = layers.parameters;
    layer.weights = layers.packed;
    layer.biases = layer.weights + layer.outputs() * layer.weight_size();
    layers.packed = rounded_up(layer.biases + layer.outputs(), 16);
    layers.parameters += outputs * (in.channels * layer.kernel * layer.kernel + 1);
    layers.convolutions.push_back(layer);
}

inline void add_linear(Layers& layers, int inputs, int real_inputs, const int32_t* spec) {
    Linear layer;
    layer.inputs = inputs;
    layer.outputs = spec[1];
    layer.stride = rounded_up(layer.outputs, LANES);
    layer.relu = spec[2] != 0;
    layer.original = layers.parameters;
    layer.weights = layers.packed;
    layer.biases = layer.weights + layer.inputs * layer.stride;
    layers.packed = rounded_up(layer.biases + layer.stride, 16);
    layers.parameters += layer.outputs * (real_inputs + 1);
    layers.linears.push_back(layer);
}

// From integers: channels, height, width, convolutions, linears; then for each convolution
// (0, outputs, kernel, padding of rows, of columns, pools, has ReLU) and for each linear layer (1, outputs, has ReLU).
inline Layers read_layers(const int32_t* spec) {
    Layers layers;
    const int convolutions = spec[3], linears = spec[4];
    Shape shape;
    shape.channels = shape.stride = spec[0];
    shape.height = spec[1];
    shape.width = spec[2];
    layers.input = shape;
    const int32_t* next = spec + 5;
    for (int i = 0; i < convolutions; i++, next += 7) {
        add_convolution(layers, shape, next);
        shape = layers.convolutions.back().out;
    }
    if (convolutions > 0) layers.input = layers.convolutions[0].in;
    for (int i = 0; i + 1 < convolutions; i++) {  // an output has the border that the next layer wants
        layers.convolutions[i].out.pad_y = layers.convolutions[i + 1].in.pad_y;
        layers.convolutions[i].out.pad_x = layers.convolutions[i + 1].in.pad_x;
    }
    int inputs = shape.height * shape.width * shape.stride;
    int real_inputs = shape.height * shape.width * shape.channels;
    for (int i = 0; i < linears; i++, next += 3) {
        add_linear(layers, inputs, real_inputs, next);
        inputs = layers.linears.back().stride;
        real_inputs = layers.linears.back().outputs;
    }
    return layers;
}

}  // namespace lidfl
