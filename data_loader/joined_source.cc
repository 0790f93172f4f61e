#include "data_loader/joined_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

class JoinedSource final : public Source {
public:
    explicit JoinedSource(std::vector<std::unique_ptr<Source>> sources) : sources_(std::move(sources)) {
        for (const auto& source : sources_) first_.push_back(first_.back() + source->size());
    }

    int64_t size() const override { return first_.back(); }
    const std::vector<std::string>& class_names() const override { return sources_.front()->class_names(); }
    int64_t class_total() const override {
        int64_t most = 0;
        for (const auto& source : sources_) most = std::max(most, source->class_total());
        return most;
    }
    int32_t label(int64_t index) const override {
        const auto [source, within] = find(index);
        return source->label(within);
    }
    std::optional<Declared> declared(int64_t index) const override {
        const auto [source, within] = find(index);
        return source->declared(within);
    }
    std::vector<std::string> contradictions() const override {
        std::vector<std::string> all;
        for (const auto& source : sources_) {
            for (std::string& text : source->contradictions()) all.push_back(std::move(text));
        }
        return all;
    }
    uint64_t fingerprint() const override {
        uint64_t all = 0;
        for (const auto& source : sources_) {
            const uint64_t one = source->fingerprint();
            all = hash_bytes(&one, sizeof one, all);
        }
        return all;
    }
    std::string description() const override {
        std::string text;
        for (const auto& source : sources_) text += (text.empty() ? "" : "; ") + source->description();
        return text;
    }
    std::string name(int64_t index) const override {
        const auto [source, within] = find(index);
        return source->name(within);
    }
    void will_need(int64_t index) const override {
        const auto [source, within] = find(index);
        source->will_need(within);
    }
    void read(int64_t index, Record& record) const override {
        const auto [source, within] = find(index);
        source->read(within, record);
    }

private:
    std::pair<const Source*, int64_t> find(int64_t index) const {
        check(index >= 0 && index < size(), "JoinedSource: index outside the set");
        const auto after = std::upper_bound(first_.begin(), first_.end(), index);
        const size_t place = static_cast<size_t>(after - first_.begin()) - 1;
        return {sources_[place].get(), index - first_[place]};
    }

    std::vector<std::unique_ptr<Source>> sources_;
    std::vector<int64_t> first_{0};  // of each source, and one past the last
};

}  // namespace

std::unique_ptr<Source> join_sources(std::vector<std::unique_ptr<Source>> sources) {
    check(!sources.empty(), "join_sources needs a source");
    if (sources.size() == 1) return std::move(sources.front());
    return std::make_unique<JoinedSource>(std::move(sources));
}

}  // namespace lockstep
