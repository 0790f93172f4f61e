#include <algorithm>

#include "core/error.h"
#include "nn/onednn/executor.h"
#include "nn/onednn/measure_convolutions.h"

namespace lockstep {

namespace onednn {

namespace {

class OnednnBackend final : public Backend {
public:
    explicit OnednnBackend(const BackendOptions& options)
        : library_(std::make_shared<const Library>(options)), workspace_(std::make_shared<Workspace>()), chooser_(options) {}

    std::string_view name() const override { return "onednn"; }

    std::vector<ParameterEntry> plan_parameters(const Graph& graph, int batch) override {
        return Compiler(*library_, graph, batch, Phase::training, layouts_, chooser_, nullptr).plan_parameters();
    }

    std::unique_ptr<Executor> compile(const Graph& graph, int batch, Phase phase, ParameterArena& arena) override {
        return compile_with(chooser_, graph, batch, phase, arena);
    }

    ConvolutionTable measure_convolutions(const Graph& graph, int batch, Phase phase, ParameterArena& arena,
                                          const ConvolutionTable& known) override {
        if (library_->options.autotune != Autotune::measure || library_->options.exact_convolution) return {};
        ConvolutionChooser library = ConvolutionChooser::always_library();
        ConvolutionChooser own = ConvolutionChooser::always_own();
        return faster_convolutions(*compile_with(library, graph, batch, phase, arena),
                                   *compile_with(own, graph, batch, phase, arena), graph, known);
    }

    void use_convolutions(const ConvolutionTable& table) override { chooser_.use(table); }
    ConvolutionTable convolutions() const override { return chooser_.chosen(); }

    void to_plain(const ParameterEntry& entry, std::span<const float> physical, std::span<float> plain) const override {
        check_sizes(entry, physical.size(), plain.size());
        if (entry.layout == "plain") {
            std::copy_n(physical.begin(), plain.size(), plain.begin());
            return;
        }
        const MemoryDesc& desc = layouts_.find(entry);
        reorder(desc, const_cast<float*>(physical.data()), plain_like(desc), plain.data());  // the source is only read
    }

    void from_plain(const ParameterEntry& entry, std::span<const float> plain, std::span<float> physical) const override {
        check_sizes(entry, physical.size(), plain.size());
        if (entry.layout == "plain") {
            std::copy_n(plain.begin(), plain.size(), physical.begin());
            return;
        }
        const MemoryDesc& desc = layouts_.find(entry);
        std::fill(physical.begin(), physical.end(), 0.0F);                                   // padding
        reorder(plain_like(desc), const_cast<float*>(plain.data()), desc, physical.data());  // the source is only read
    }

    std::string description() const override { return library_->description(); }

private:
    std::unique_ptr<OnednnExecutor> compile_with(ConvolutionChooser& chooser, const Graph& graph, int batch, Phase phase,
                                                 ParameterArena& arena) {
        Compiled compiled = Compiler(*library_, graph, batch, phase, layouts_, chooser, &arena).compile();
        return std::make_unique<OnednnExecutor>(library_, workspace_, std::move(compiled), graph, batch, phase);
    }

    static MemoryDesc plain_like(const MemoryDesc& desc) { return plain_desc(desc.dims(), desc.data_type()); }

    static void check_sizes(const ParameterEntry& entry, size_t physical_count, size_t plain_count) {
        check(physical_count == static_cast<size_t>(entry.physical_count), "not the physical size of this entry");
        check(plain_count == static_cast<size_t>(element_count(entry.spec.shape)), "not the plain size of this entry");
    }

    void reorder(const MemoryDesc& from_desc, float* from, const MemoryDesc& to_desc, float* to) const {
        library_->use_threads();
        dnnl::memory source(from_desc, library_->engine, from);
        dnnl::memory target(to_desc, library_->engine, to);
        dnnl::stream stream(library_->engine);
        dnnl::reorder(source, target).execute(stream, source, target);
        stream.wait();
    }

    std::shared_ptr<const Library> library_;  // shared with executors, which may outlive the backend
    std::shared_ptr<Workspace> workspace_;
    LayoutTable layouts_;
    ConvolutionChooser chooser_;
};

}  // namespace

}  // namespace onednn

std::unique_ptr<Backend> make_onednn_backend(const BackendOptions& options) {
    try {
        return std::make_unique<onednn::OnednnBackend>(options);
    } catch (const dnnl::error& error) {
        throw DeviceError(std::string("oneDNN cannot start: ") + error.message);
    }
}

}  // namespace lockstep
