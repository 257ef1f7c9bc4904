// What Python calls: train models, and evaluate one.

#include <omp.h>

#include <atomic>

#include "network.h"
#include "packing.h"
#include "sparse.h"

namespace lidfl {

// Images that go through all layers before the next ones: what they leave behind fits the caches.
// Without convolutions that is little, and weights are read once for more of them.
inline int slice_of(const Layers& layers) { return layers.convolutions.empty() ? 64 : 16; }
inline int evaluation_slice_of(const Layers& layers) { return layers.convolutions.empty() ? 60 : 12; }
// With fewer images, waking a second thread costs more than it saves.
constexpr int IMAGES_WORTH_A_THREAD = 2048;

struct Data {
    const float* images;
    const int64_t* labels;
};

struct Descent {
    int steps, batch_size;
    float learning_rate, momentum;
};

// One local training: SGD with momentum, v ← μv + g, w ← w − ℓv, from v = 0.
class Trainer {
  public:
    Trainer(const Layers& layers, int images, int threads)
        : model_(layers), batch_(layers, images, true), gradient_(layers.packed), velocity_(layers.packed) {
        for (int t = 0; t < threads; t++) scratch_.push_back(std::make_unique<Scratch>(layers, images));
    }

    void start(const float* weights) {
        float* packed = model_.packed.data();
        std::memset(velocity_.data(), 0, velocity_.size() * sizeof(float));
        std::memset(gradient_.data(), 0, gradient_.size() * sizeof(float));
        std::memset(packed, 0, model_.packed.size() * sizeof(float));
        each_parameter(model_.layers, [&](int place, int original) { packed[place] = weights[original]; });
        is_safe_ = true;
    }

    // Every thread of the team calls this.
    void run(const Team& team, const Data& data, const int64_t* rows, const Descent& descent) {
        const int slice = slice_of(model_.layers);
        for (int step = 0; step < descent.steps; step++, rows += descent.batch_size) {
            model_.derive(team, true);
            if (team.rank == 0) is_safe_ = is_safe_ && model_.is_safe();
            for (int first = 0; first < descent.batch_size; first += slice) {
                const int count = std::min(slice, descent.batch_size - first);
                work_on_images(team, data, rows + first, count, descent.batch_size);
                team.wait();
                convolution_gradients(model_, batch_, count, team, *scratch_[team.rank], gradient_.data());
                linear_gradients(model_, batch_, count, team, gradient_.data());
                team.wait();
            }
            descend(team, descent);
            team.wait();
            if (!is_safe_) return;  // torch begins anew
        }
    }

    // The update, and whether it can be relied on: nothing overflowed on the way, and it is finite.
    bool write_update(const float* weights, float* update) const {
        const float* packed = model_.packed.data();
        float poison = 0;
        each_parameter(model_.layers, [&](int place, int original) {
            update[original] = packed[place] - weights[original];
            poison += 0.0f * update[original];
        });
        return is_safe_ && poison == 0;
    }

  private:
    // Forwards and back, each thread with some of the images.
    void work_on_images(const Team& team, const Data& data, const int64_t* rows, int count, int batch_size) {
        const Layers& layers = model_.layers;
        Scratch& scratch = *scratch_[team.rank];
        const int first = team.first(count), last = team.last(count);
        const Shape& in = layers.input;
        const size_t image_size = layers.pixels();
        for (int n = first; n < last; n++) {
            read_image(in, data.images + rows[n] * image_size, batch_.images[0].data() + size_t(n) * in.size());
        }
        forward_convolutions(model_, batch_, first, last - first, scratch, true);
        forward_linears(model_, batch_, first, last - first);
        const Linear& top = layers.linears.back();
        for (int n = first; n < last; n++) {
            loss_gradient(top, batch_.outputs.back().data() + size_t(n) * top.stride,
                          static_cast<int>(data.labels[rows[n]]), batch_size,
                          batch_.output_gradients.back().data() + size_t(n) * top.stride);
        }
        backward_linears(model_, batch_, first, last - first);
        for (int n = first; n < last; n++) backward_convolutions(model_, batch_, n, scratch);
    }

    void descend(const Team& team, const Descent& descent) {
        float* w = model_.packed.data();
        float* v = velocity_.data();
        float* g = gradient_.data();
        const int size = model_.layers.packed;
#pragma omp simd
        for (int i = team.first(size); i < team.last(size); i++) {
            v[i] = descent.momentum * v[i] + g[i];
            w[i] -= descent.learning_rate * v[i];
            g[i] = 0;
        }
    }

    Model model_;
    Batch batch_;
    Buffer<float> gradient_, velocity_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
    bool is_safe_ = true;
};

struct JobList {
    const float* starts;
    const int64_t* rows;
    float* updates;
    uint8_t* reliable;  // whether each update can be relied on
    int count, dim;
};

void run_job(Trainer& trainer, const Team& team, const JobList& jobs, int job, const Data& data,
             const Descent& descent) {
    const float* start = jobs.starts + size_t(job) * jobs.dim;
    if (team.rank == 0) trainer.start(start);
    team.wait();
    trainer.run(team, data, jobs.rows + size_t(job) * descent.steps * descent.batch_size, descent);
    if (team.rank == 0) jobs.reliable[job] = trainer.write_update(start, jobs.updates + size_t(job) * jobs.dim);
    team.wait();
}

// As many jobs at a time as there are threads, a thread each; those that are left over by all threads together.
void train(const Layers& layers, const JobList& jobs, const Data& data, const Descent& descent, int threads) {
    const int alone = jobs.count / threads * threads;
    const int trainers = alone > 0 ? threads : 1, images = std::min(slice_of(layers), descent.batch_size);
    std::vector<std::unique_ptr<Trainer>> trainer;
    for (int t = 0; t < trainers; t++) {
        trainer.push_back(std::make_unique<Trainer>(layers, images, t == 0 ? threads : 1));
    }
    const unsigned mode = float_mode();
    std::atomic<int> next{0};
#pragma omp parallel num_threads(threads)
    {
        const unsigned before = float_mode();
        set_float_mode(mode);
        const int rank = omp_get_thread_num();
        if (rank < trainers) {
            for (int job = next++; job < alone; job = next++) run_job(*trainer[rank], Team{}, jobs, job, data, descent);
        }
#pragma omp barrier
        const Team team{rank, omp_get_num_threads()};
        for (int job = alone; job < jobs.count; job++) run_job(*trainer[0], team, jobs, job, data, descent);
        set_float_mode(before);
    }
}

// Where one thread's images go through the network.
struct Station {
    Station(const Layers& layers, int images) : batch(layers, images, false), scratch(layers, images) {}
    Batch batch;
    Scratch scratch;
};

// The logits of one slice of images; whether all pixels are of a size that the network was tested for.
bool evaluate_slice(const Model& model, Station& station, const float* images, int count, float* logits) {
    const Layers& layers = model.layers;
    const Shape& in = layers.input;
    const size_t image_size = layers.pixels();
    bool is_safe = true;
    for (int n = 0; n < count; n++) {
        const float* image = images + n * image_size;
        is_safe = is_safe && largest_magnitude(image, static_cast<int>(image_size)) <= LARGEST_PIXEL;
        read_image(in, image, station.batch.images[0].data() + size_t(n) * in.size());
    }
    forward_convolutions(model, station.batch, 0, count, station.scratch, false);
    forward_linears(model, station.batch, 0, count);
    for (int n = 0; n < count; n++) {
        const float* from = station.batch.outputs.back().data() + n * layers.linears.back().stride;
        std::copy(from, from + layers.classes(), logits + size_t(n) * layers.classes());
    }
    return is_safe;
}

// The logits of all images; whether they can be relied on.
bool evaluate(const Layers& layers, const float* weights, const float* images, int count, int threads, float* logits) {
    Model model(layers);
    each_parameter(layers, [&](int place, int original) { model.packed.data()[place] = weights[original]; });
    model.derive(Team{}, false);
    const int size = evaluation_slice_of(layers), slices = (count + size - 1) / size;
    std::vector<std::unique_ptr<Station>> stations;
    for (int t = 0; t < threads; t++) stations.push_back(std::make_unique<Station>(layers, size));
    const unsigned mode = float_mode();
    const size_t image_size = layers.pixels();
    std::atomic<int> next{0};
    std::atomic<bool> is_safe{model.is_safe()};
#pragma omp parallel num_threads(threads)
    {
        const unsigned before = float_mode();
        set_float_mode(mode);
        Station& station = *stations[omp_get_thread_num()];
        for (int slice = next++; slice < slices && is_safe; slice = next++) {
            const int first = slice * size, here = std::min(size, count - first);
            if (!evaluate_slice(model, station, images + first * image_size, here,
                                logits + size_t(first) * layers.classes())) {
                is_safe = false;
            }
        }
        set_float_mode(before);
    }
    return is_safe;
}

// Softmax regression on inked images, a job a thread at a time.
bool train_softmax(int inputs, int classes, const Inked& data, const JobList& jobs, const Descent& descent,
                   int threads) {
    return with_width(classes, [&](auto width) {
        std::vector<std::unique_ptr<SoftmaxTrainer<width>>> trainers;
        for (int t = 0; t < std::max(1, std::min(threads, jobs.count)); t++) {
            trainers.push_back(std::make_unique<SoftmaxTrainer<width>>(inputs, classes));
        }
        const unsigned mode = float_mode();
#pragma omp parallel num_threads(trainers.size())
        {
            const unsigned before = float_mode();
            set_float_mode(mode);
            SoftmaxTrainer<width>& trainer = *trainers[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
            for (int job = 0; job < jobs.count; job++) {
                const float* start = jobs.starts + size_t(job) * jobs.dim;
                const int64_t* rows = jobs.rows + size_t(job) * descent.steps * descent.batch_size;
                trainer.start(start, data.background);
                const bool is_safe = trainer.is_safe();
                for (int step = 0; step < descent.steps; step++, rows += descent.batch_size) {
                    trainer.step(data, rows, descent.batch_size, descent.learning_rate, descent.momentum);
                }
                trainer.write_update(start, jobs.updates + size_t(job) * jobs.dim);
                jobs.reliable[job] = is_safe && trainer.is_safe();
            }
            set_float_mode(before);
        }
    });
}

// The logits of inked images; false if they cannot be relied on.
bool evaluate_softmax(int inputs, int classes, const Inked& data, const float* weights, int count, int threads,
                      float* logits) {
    bool is_safe = false;
    const bool is_possible = with_width(classes, [&](auto width) {
        SoftmaxModel<width> model(inputs, classes);
        model.read(weights, data.background);
        is_safe = model.is_safe();
        const unsigned mode = float_mode();
#pragma omp parallel num_threads(count >= IMAGES_WORTH_A_THREAD ? threads : 1)
        {
            const unsigned before = float_mode();
            set_float_mode(mode);
#pragma omp for
            for (int image = 0; image < count; image++) {
                Vector sums[width];
                model.logits(data, image, sums);
                std::memcpy(logits + size_t(image) * classes, sums, classes * sizeof(float));
            }
            set_float_mode(before);
        }
    });
    return is_possible && is_safe;
}

}  // namespace lidfl

extern "C" {

// As many classes as softmax regression may have here.
int lidfl_softmax_classes() { return lidfl::MOST_CLASSES; }

// Updates of jobs on softmax regression, and whether each can be relied on; 0 if it was done.
int lidfl_train_softmax(int inputs, int classes, const int64_t* offsets, const int32_t* features,
                        const float* deviations, const float* background, const int64_t* labels, const float* starts,
                        const int64_t* rows, int jobs, int steps, int batch_size, float learning_rate, float momentum,
                        int threads, float* updates, uint8_t* reliable) {
    try {
        const lidfl::Inked data{offsets, features, deviations, background, labels};
        const lidfl::JobList list{starts, rows, updates, reliable, jobs, (inputs + 1) * classes};
        const lidfl::Descent descent{steps, batch_size, learning_rate, momentum};
        return lidfl::train_softmax(inputs, classes, data, list, descent, threads) ? 0 : 1;
    } catch (const std::exception&) {
        return 1;
    }
}

// Logits of inked images, (images, classes); 0 if they can be relied on.
int lidfl_logits_softmax(int inputs, int classes, const int64_t* offsets, const int32_t* features,
                         const float* deviations, const float* background, const float* weights, int count,
                         int threads, float* logits) {
    try {
        const lidfl::Inked data{offsets, features, deviations, background, nullptr};
        return lidfl::evaluate_softmax(inputs, classes, data, weights, count, threads, logits) ? 0 : 1;
    } catch (const std::exception&) {
        return 1;
    }
}

// How many parameters a network of this shape has, or -1 if there is none; see read_layers for the shape.
int lidfl_parameters(const int32_t* shape) {
    try {
        return lidfl::read_layers(shape).parameters;
    } catch (const std::exception&) {
        return -1;
    }
}

// Updates of jobs, (jobs, parameters), and whether each can be relied on; 0 if there was memory for it.
int lidfl_train(const int32_t* shape, const float* images, const int64_t* labels, const float* starts,
                const int64_t* rows, int jobs, int steps, int batch_size, float learning_rate, float momentum,
                int threads, float* updates, uint8_t* reliable) {
    try {
        const lidfl::Layers layers = lidfl::read_layers(shape);
        const lidfl::JobList list{starts, rows, updates, reliable, jobs, layers.parameters};
        lidfl::train(layers, list, {images, labels}, {steps, batch_size, learning_rate, momentum}, threads);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

// Logits of images, (images, classes); 0 if they can be relied on.
int lidfl_logits(const int32_t* shape, const float* weights, const float* images, int count, int threads,
                 float* logits) {
    try {
        return lidfl::evaluate(lidfl::read_layers(shape), weights, images, count, threads, logits) ? 0 : 1;
    } catch (const std::exception&) {
        return 1;
    }
}
}
