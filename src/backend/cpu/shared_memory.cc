#include "backend/cpu/shared_memory.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>

extern "C" void* __tls_get_addr(void* index);

namespace penstock::backend::cpu {
namespace {

constexpr char kTag[] = "B15penstock_shared";  // the ABI tag as the Itanium ABI mangles it
constexpr size_t kTableSizeMax = size_t{1} << 30;

struct Module {
    uintptr_t address = 0;  // the address that is searched for
    uintptr_t base = 0;
    size_t tls_module = 0;
    std::string path;
    bool found = false;
};

int find_module(dl_phdr_info* info, size_t, void* argument) {
    auto* module = static_cast<Module*>(argument);
    for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header.p_vaddr;
        if (header.p_type != PT_LOAD || module->address - start >= header.p_memsz) continue;
        module->found = true;
        module->base = info->dlpi_addr;
        module->tls_module = info->dlpi_tls_modid;
        bool is_program = info->dlpi_name == nullptr || *info->dlpi_name == '\0';
        module->path = is_program ? "/proc/self/exe" : info->dlpi_name;
        return 1;
    }
    return 0;
}

class File {
public:
    explicit File(const char* path) : stream_(path, std::ios::binary) {}

    // Returns whether all `size` bytes at `offset` were read.
    bool read(void* to, size_t size, uint64_t offset) {
        stream_.seekg(static_cast<std::streamoff>(offset));
        stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
        return stream_.good();
    }
    template <class T>
    bool read_table(const ElfW(Shdr) & section, std::vector<T>* table) {
        if (section.sh_size > kTableSizeMax) return false;
        table->resize(section.sh_size / sizeof(T));
        return read(table->data(), table->size() * sizeof(T), section.sh_offset);
    }

private:
    std::ifstream stream_;
};

// Returns the thread-local symbols with the tag, in no order.
std::vector<SharedRange> read_ranges(const char* path) {
    File file(path);
    ElfW(Ehdr) header;
    if (!file.read(&header, sizeof header, 0)) return {};
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_shentsize != sizeof(ElfW(Shdr))) {
        return {};
    }
    std::vector<ElfW(Shdr)> sections(header.e_shnum);
    if (!file.read(sections.data(), sections.size() * sizeof(ElfW(Shdr)), header.e_shoff))
        return {};
    std::vector<SharedRange> ranges;
    for (const auto& section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        std::vector<ElfW(Sym)> symbols;
        std::vector<char> names;
        if (!file.read_table(section, &symbols) ||
            !file.read_table(sections[section.sh_link], &names))
            continue;
        names.push_back('\0');
        for (const auto& symbol : symbols) {
            if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
            if (symbol.st_name >= names.size()) continue;
            if (std::strstr(&names[symbol.st_name], kTag) == nullptr) continue;
            ranges.push_back({symbol.st_value, symbol.st_size});
        }
    }
    return ranges;
}

}  // namespace

const SharedLayout& shared_layout(const void* function) {
    static std::mutex mutex;
    static auto* layouts = new std::map<uintptr_t, std::unique_ptr<SharedLayout>>;  // by base;
                                                                                    // never
                                                                                    // destroyed
    Module module;
    module.address = reinterpret_cast<uintptr_t>(function);
    dl_iterate_phdr(find_module, &module);
    std::lock_guard lock(mutex);
    auto& layout = (*layouts)[module.base];
    if (layout == nullptr) {
        layout = std::make_unique<SharedLayout>();
        layout->tls_module = module.tls_module;
        if (module.found && module.tls_module != 0)
            layout->ranges = read_ranges(module.path.c_str());
        std::sort(layout->ranges.begin(), layout->ranges.end(),
                  [](const SharedRange& a, const SharedRange& b) { return a.offset < b.offset; });
    }
    return *layout;
}

void poison_shared(const SharedLayout& layout) {
    if (layout.ranges.empty()) return;
    size_t index[2] = {layout.tls_module, 0};  // tls_index: also allocates the block of this thread
    char* block = static_cast<char*>(__tls_get_addr(index));
    for (const SharedRange& range : layout.ranges)
        std::memset(block + range.offset, kPoison, range.size);
}

}  // namespace penstock::backend::cpu
