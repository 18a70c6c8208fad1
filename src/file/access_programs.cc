// The public access programs: parsed once, shared by the files that are read as they say.
#include <algorithm>
#include <span>
#include <utility>

#include "access/binary.h"
#include "access/json.h"
#include "access/program.h"
#include "penstock/access.h"

namespace penstock {
namespace {

Result<std::vector<access::Program>> parse_either(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && text[first] == '{') return access::parse_json(text);
    return access::parse_binary({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

Result<AccessPrograms> AccessPrograms::parse(std::string_view text) {
    auto programs = parse_either(text);
    if (!programs.ok()) return programs.status();
    AccessPrograms made;
    made.all_ = std::make_shared<const std::vector<access::Program>>(std::move(programs.value()));
    return made;
}

std::shared_ptr<const access::Program> AccessPrograms::find(std::string_view file) const {
    if (all_ == nullptr) return nullptr;
    const access::Program* found = nullptr;
    for (const access::Program& program : *all_) {
        if (program.key.file != file || program.key.operation == access::Operation::kWrite)
            continue;
        if (found == nullptr || program.provenance.support > found->provenance.support)
            found = &program;
    }
    return {all_, found};
}

}  // namespace penstock
