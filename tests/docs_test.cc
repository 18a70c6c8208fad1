// Goal: documents say what the code says. docs/abi.md: sizes, bit fields, and the order of every
// site. README.md: its kernel is the example's. Links lead somewhere, files that are named are
// there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/abi/file_system.h"
#include "penstock/abi/orders.h"
#include "penstock/abi/preemption.h"

namespace penstock {
namespace {

std::string read_text(const std::string& path) {
    std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/" + path);
    EXPECT_TRUE(file.is_open()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

// The rows of one section's tables, as cells without their spaces and backquotes.
std::vector<std::vector<std::string>> rows_of(const std::string& section) {
    std::istringstream page(read_text("docs/abi.md"));
    std::vector<std::vector<std::string>> rows;
    std::string heading;
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("## ")) heading = line.substr(3);
        if (heading != section || !line.starts_with("| ") || line.starts_with("| ---")) continue;
        std::vector<std::string> cells;
        std::istringstream text(line.substr(1));
        for (std::string cell; std::getline(text, cell, '|');) {
            std::erase_if(cell, [](char c) { return c == ' ' || c == '`'; });
            cells.push_back(cell);
        }
        rows.push_back(cells);
    }
    EXPECT_GT(rows.size(), 1u) << "no table under ## " << section;
    return rows;
}

// A bit field's place is told by the word with all its bits set.
uint64_t bits(const std::vector<std::string>& row) {
    const unsigned first = std::stoul(row[1]), count = std::stoul(row[2]);
    return (count == 64 ? ~0ull : (1ull << count) - 1) << first;
}

void expect_fields(const std::string& section, const std::map<std::string, uint64_t>& fields) {
    size_t found = 0;
    for (const auto& row : rows_of(section)) {
        const auto field = fields.find(row[0]);
        if (field == fields.end()) continue;
        EXPECT_EQ(bits(row), field->second) << section << ": " << row[0];
        ++found;
    }
    EXPECT_EQ(found, fields.size()) << section;
}

TEST(AbiDoc, SizesAreThoseOfTheCode) {
#define PENSTOCK_SIZE_ROW(T)          \
    {                                 \
#T, { sizeof(T), alignof(T) } \
    }
    const std::map<std::string, std::pair<size_t, size_t>> sizes = {
        PENSTOCK_SIZE_ROW(PageEntry),       PENSTOCK_SIZE_ROW(Completion),
        PENSTOCK_SIZE_ROW(RequestSlot),     PENSTOCK_SIZE_ROW(Descriptor),
        PENSTOCK_SIZE_ROW(FileState),       PENSTOCK_SIZE_ROW(HostWords),
        PENSTOCK_SIZE_ROW(HostWordsCache),  PENSTOCK_SIZE_ROW(ControlPort),
        PENSTOCK_SIZE_ROW(RingState),       PENSTOCK_SIZE_ROW(FileSystemState),
        PENSTOCK_SIZE_ROW(Window),          PENSTOCK_SIZE_ROW(ReadStream),
        PENSTOCK_SIZE_ROW(ReadaheadPlace),  PENSTOCK_SIZE_ROW(AsyncCall),
        PENSTOCK_SIZE_ROW(SavedBlock),      PENSTOCK_SIZE_ROW(PreemptionWords),
        PENSTOCK_SIZE_ROW(PreemptionState), PENSTOCK_SIZE_ROW(FileCounts),
        PENSTOCK_SIZE_ROW(FileTotals)};
#undef PENSTOCK_SIZE_ROW
    const auto rows = rows_of("Sizes");
    EXPECT_EQ(rows.size(), sizes.size() + 1);
    for (size_t i = 1; i < rows.size(); ++i) {
        ASSERT_TRUE(sizes.contains(rows[i][0])) << rows[i][0];
        EXPECT_EQ(std::stoul(rows[i][1]), sizes.at(rows[i][0]).first) << rows[i][0];
        EXPECT_EQ(std::stoul(rows[i][2]), sizes.at(rows[i][0]).second) << rows[i][0];
    }
}

TEST(AbiDoc, BitFieldsAreThoseOfTheCode) {
    expect_fields("Page entry", {{"state", kStateMask},
                                 {"dirty", kDirtyBit},
                                 {"touched", kTouchedBit},
                                 {"pins", kPinMask},
                                 {"generation", kGenerationMax << kGenerationShift},
                                 {"frame", ~0ull << kFrameShift}});
    expect_fields("Completion word", {{"generation", make_completion(kGenerationMax, 0, 0)},
                                      {"errno", make_completion(0, 0x7fff, 0)},
                                      {"bytes", make_completion(0, 0, ~0u)}});
    expect_fields("Host words and file slots",
                  {{"slot", static_cast<uint64_t>(make_descriptor(0, 0xffff, 0))},
                   {"generation", static_cast<uint64_t>(make_descriptor(0, 0, ~0ull))},
                   {"system", static_cast<uint64_t>(make_descriptor(~0u, 0, 0))},
                   {"sign", 1ull << 63}});
}

TEST(AbiDoc, EverySiteIsNamedWithItsOrder) {
    const char* const names[] = {"relaxed", "acquire", "release", "both"};
    std::map<std::string, std::string> described;
    for (const auto& row : rows_of("Orders")) described[row[0]] = row[1];
    described.erase("site");
    for (const SiteDescription& site : kSiteDescriptions) {
        if (order_of(site.site) == Order::kRelaxed) continue;
        EXPECT_EQ(described[site.name], names[static_cast<uint32_t>(order_of(site.site))])
            << site.name;
        described.erase(site.name);
    }
    EXPECT_TRUE(described.empty()) << "not in abi/orders.h: " << described.begin()->first;
}

TEST(Readme, ItsKernelIsTheExample) {
    EXPECT_NE(read_text("README.md").find(read_text("examples/out-of-tree/count_lines.cu")),
              std::string::npos);
}

// Every page of the project, and of docs/ below.
std::vector<std::filesystem::path> pages() {
    namespace files = std::filesystem;
    const files::path root(PENSTOCK_SOURCE_DIR);
    std::vector<files::path> found;
    for (const auto& entry : files::directory_iterator(root)) found.push_back(entry.path());
    for (const auto& entry : files::recursive_directory_iterator(root / "docs"))
        found.push_back(entry.path());
    std::erase_if(found, [](const files::path& path) { return path.extension() != ".md"; });
    return found;
}

// What `pattern` finds in a page, and in which.
template <class Visit>
void for_each_match(const char* pattern, Visit visit) {
    const std::regex expression(pattern);
    for (const auto& page : pages()) {
        const std::string text = read_text(std::filesystem::relative(page, PENSTOCK_SOURCE_DIR));
        for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end;
             ++match)
            visit(page, (*match)[1].str());
    }
}

TEST(Documents, LinksLeadSomewhere) {
    for_each_match(R"(\]\(([^)#:]+)\))", [](const auto& page, const std::string& link) {
        EXPECT_TRUE(std::filesystem::exists(page.parent_path() / link)) << page << ": " << link;
    });
}

TEST(Documents, FilesTheyNameAreThere) {
    const std::filesystem::path root(PENSTOCK_SOURCE_DIR);
    for_each_match(R"(`((src|include|tests|bench|workloads|examples|frontends|docs|setup|cmake)/)"
                   R"([\w./-]*[\w-]\.(h|cuh|cc|cu|py|md|sh|svg))`)",
                   [&](const auto& page, const std::string& path) {
                       // NAME, VERB and X stand for any.
                       if (std::regex_search(path, std::regex("NAME|VERB|/X[._]"))) return;
                       EXPECT_TRUE(std::filesystem::exists(root / path)) << page << ": " << path;
                   });
}

}  // namespace
}  // namespace penstock
