#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/idx.h"
#include "data_loader/lmdb_file.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tar.h"
#include "data_loader/tfrecord.h"

namespace lockstep {

namespace {

std::string detect_folder(const SourceOptions& options) {
    const fs::path path = options.path;
    if (find_mnist_images(path, true) || find_mnist_images(path, false)) return "mnist";
    if (has_cifar_files(path)) return "cifar_bin";
    if (!options.labels_path.empty()) return "flat";
    if (fs::exists(path / "data.mdb")) return "lmdb";
    bool has_tar = false, has_tfrecord = false, has_mds = false;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
        if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) return "folder";
        const std::string name = entry.path().filename().string();
        has_tar = has_tar || name.ends_with(".tar");
        has_tfrecord = has_tfrecord || is_tfrecord_name(name);
        has_mds = has_mds || name.find(".mds") != std::string::npos;
    }
    if (has_mds && fs::exists(path / "index.json")) return "mds";
    if (has_tfrecord && !has_tar) return "tfrecord";
    return has_tar ? "webdataset" : "folder";  // an empty folder: the folder source says what it misses
}

std::string detect_tar(const MappedFile& file) {
    const TarIndex index = read_tar_index(file.bytes(), file.path());
    const bool has_labels = std::any_of(index.members.begin(), index.members.end(),
                                        [](const TarMember& member) { return member.name.ends_with(".cls"); });
    return has_labels ? "webdataset" : "tar";
}

}  // namespace

std::string detect_source_kind(const SourceOptions& options) {
    if (options.path.empty()) throw ConfigError("no data path; set data.train.path, or the source to synthetic");
    if (options.path.find('{') != std::string::npos)
        return is_tfrecord_name(expand_braces(options.path)[0]) ? "tfrecord" : "webdataset";
    if (fs::is_directory(options.path)) return detect_folder(options);
    const MappedFile file(options.path);
    const std::string extension = file.path().extension().string();
    if (extension == ".tar" || looks_like_tar(file.bytes())) return detect_tar(file);
    if (looks_like_idx_images(file.bytes())) return "mnist";
    if (extension == ".mdb" || looks_like_lmdb(file.bytes())) return "lmdb";
    if (extension == ".beton") return "beton";
    if (is_tfrecord_name(file.path().filename().string()) || looks_like_tfrecord(file.bytes())) return "tfrecord";
    if (extension == ".bin") return "cifar_bin";
    if (extension == ".txt" || extension == ".lst" || extension == ".list") return "list";
    throw DataError(
        fmt::format("{}: cannot tell what kind of data this is; set the source (folder, tar, webdataset, list, flat, "
                    "tfrecord, mds, lmdb, beton, mnist, cifar_bin)",
                    options.path));
}

std::unique_ptr<Source> open_source(const SourceOptions& options) {
    struct Row {
        std::string_view kind;
        std::unique_ptr<Source> (*open)(const SourceOptions&);
        bool integer_labels = false;
    };
    static constexpr Row kRows[] = {
        {"folder", open_folder_source},
        {"tar", open_tar_source},
        {"webdataset", open_webdataset_source, true},
        {"list", open_list_source, true},
        {"flat", open_flat_source, true},
        {"tfrecord", open_tfrecord_source, true},
        {"mds", open_mds_source, true},
        {"lmdb", open_lmdb_source, true},
        {"beton", open_beton_source, true},
        {"mnist", open_mnist_source},
        {"cifar_bin", open_cifar_source},
        {"synthetic", open_synthetic_source},
        {"synthetic_jpeg", open_synthetic_jpeg_source},
    };
    const std::string kind = options.kind == "auto" ? detect_source_kind(options) : options.kind;
    for (const Row& row : kRows) {
        if (row.kind != kind) continue;
        if (options.first_label != 0 && !row.integer_labels) {
            throw ConfigError(fmt::format("first_label={}: the labels of a {} source do not count from it; leave it at 0",
                                          options.first_label, kind));
        }
        if (options.coarse_labels && kind != "cifar_bin") {
            throw ConfigError(fmt::format("cifar100_labels=coarse: a {} source has none; set fine", kind));
        }
        if (options.raw_colour != "bgr" && kind != "lmdb") {
            throw ConfigError(fmt::format("raw_colour={}: only an lmdb source leaves it open; set bgr", options.raw_colour));
        }
        return row.open(options);
    }
    throw ConfigError(
        fmt::format("unknown data source \"{}\"; use auto, folder, tar, webdataset, list, flat, tfrecord, mds, lmdb, beton, mnist, "
                    "cifar_bin, synthetic or synthetic_jpeg",
                    options.kind));
}

}  // namespace lockstep
