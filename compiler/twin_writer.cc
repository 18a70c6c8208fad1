// Puts the parts of a kernel's declaration together anew.
#include "compiler/twin_writer.h"

#include "compiler/body_writer.h"

namespace penstock::compiler {

using clang::dyn_cast;
using clang::isa;

unsigned TwinWriter::place(const Kernel& kernel) const {
    return text_.span(kernel.pattern->getSourceRange()).end;
}

bool TwinWriter::check(const Kernel& kernel) {
    const clang::FunctionDecl* pattern = kernel.pattern;
    const auto refuse = [&](clang::SourceLocation at, const std::string& what) {
        diagnostics_.error(at, what);
        return false;
    };
    if (pattern->getQualifier() != nullptr)
        return refuse(pattern->getLocation(),
                      "a kernel with points is defined in its namespace, not by a qualified name");
    if (pattern->isFunctionTemplateSpecialization() && kernel.head == nullptr &&
        !pattern->isTemplateInstantiation())
        return refuse(pattern->getLocation(),
                      "a kernel with points may not be an explicit specialisation; use if "
                      "constexpr in the template");
    if (pattern->getLocation().isMacroID() || pattern->getBody()->getBeginLoc().isMacroID())
        return refuse(pattern->getLocation(), "a kernel with points may not come from a macro");
    const auto type = pattern->getFunctionTypeLoc();
    if (type && type.getLParenLoc().isMacroID())
        return refuse(pattern->getLocation(),
                      "the parameters of a kernel with points may not come from a macro; write "
                      "their parentheses out");
    for (const auto* parameter : pattern->parameters()) {
        if (parameter->getType()->getContainedAutoType() != nullptr)
            return refuse(parameter->getLocation(),
                          "a kernel with points names the types of its parameters; write a "
                          "template");
    }
    return true;
}

std::string TwinWriter::template_arguments(const Kernel& kernel) {
    if (kernel.head == nullptr) return "";
    std::string result;
    for (const clang::NamedDecl* parameter : *kernel.head->getTemplateParameters()) {
        if (parameter->getDeclName().isEmpty()) {
            diagnostics_.error(parameter->getLocation(),
                               "name this template parameter: a kernel with points passes it on");
            return "";
        }
        result += (result.empty() ? "<" : ", ") + parameter->getNameAsString() +
                  (parameter->isParameterPack() ? "..." : "");
    }
    return result + ">";
}

std::string TwinWriter::arguments(const Kernel& kernel, Edits& edits) {
    std::string result;
    unsigned index = 0;
    for (const auto* parameter : kernel.pattern->parameters()) {
        std::string name = parameter->getNameAsString();
        ++index;
        unsigned end = text_.end_offset(parameter->getEndLoc());
        if (parameter->hasDefaultArg()) {  // a launch passes all arguments
            const RawToken* value = text_.token_from(text_.offset(parameter->getBeginLoc()));
            while (value != nullptr && value->first != '=') value = text_.token_from(value->end());
            if (value != nullptr && value->offset < end) {
                edits.replace({value->offset, end}, "");
                end = value->offset;
            }
        }
        if (name.empty()) {
            name = "penstock_parameter_" + std::to_string(index);
            edits.insert(end, " " + name);
            const auto* body = clang::cast<clang::CompoundStmt>(kernel.pattern->getBody());
            edits.insert(text_.offset(body->getLBracLoc()) + 1,
                         " static_cast<void>(" + name + ");");
        }
        result += name + (parameter->isParameterPack() ? "..., " : ", ");
    }
    return result;
}

std::string TwinWriter::write(const Kernel& kernel, const Frame& frame, PositionCopies& copies) {
    if (!check(kernel)) return "";
    const clang::FunctionDecl* pattern = kernel.pattern;
    const Span whole = text_.span(pattern->getSourceRange());
    const auto* body = clang::cast<clang::CompoundStmt>(pattern->getBody());
    const RawToken* name = text_.token_from(text_.offset(pattern->getLocation()));
    const unsigned open = text_.token_from(name->end())->offset;
    const unsigned close = text_.closing(open);
    const unsigned brace = text_.offset(body->getLBracLoc());
    const Span head = kernel.head == nullptr
                          ? Span{whole.begin, whole.begin}
                          : Span{text_.span(kernel.head->getSourceRange()).begin, whole.begin};

    Edits edits(text_, presumed_file_);
    const std::string passed = arguments(kernel, edits);
    if (frame.reads_block) edits.insert(brace + 1, kPositionVariables);
    BodyWriter(text_, kernel, frame, edits, diagnostics_).write();
    for (const clang::FunctionDecl* instance : kernel.instances)
        copies.edit_calls(instance, whole.begin, edits);

    const std::string parameters = edits.apply({open + 1, close});
    const std::string before = passed.empty() ? "" : parameters + ", ";
    const std::string run = frame.one_run ? "OneRun" : "Run";
    const std::string line = edits.line_directive(head.begin).substr(1);
    const std::string end = frame.one_run ? "        if (penstock_run.ends()) break;\n"
                                          : "        penstock_run.end();\n";
    const std::string call = "        " + pattern->getNameAsString() + "__body" +
                             template_arguments(kernel) + "(" + passed + "penstock_run);\n" + end +
                             "    }\n";

    std::string result = "\n\n// The form of " + pattern->getNameAsString() +
                         " whose blocks may leave at its points.\n";
    result +=
        "#ifndef __NVCC__\n#pragma GCC diagnostic push\n"
        "#pragma GCC diagnostic ignored \"-Wmaybe-uninitialized\"\n#endif\n";
    if (frame.reads_block) result += position_begin();
    result += line + text_.text(head) + "__device__ static inline void " +
              pattern->getNameAsString() + "__body(" + before +
              "::penstock::preemption::Run& penstock_run)" + text_.text(Span{close + 1, brace}) +
              edits.apply({brace, whole.end}) + "\n";
    if (frame.reads_block) result += position_end();
    result += line + text_.text(Span{head.begin, name->offset}) + pattern->getNameAsString() +
              "__preemptible(" + before + "::penstock::preemption::Launch penstock_launch)" +
              text_.text(Span{close + 1, brace}) + "{\n    ::penstock::preemption::" + run +
              " penstock_run(penstock_launch);\n    while (penstock_run.begin()) {\n" + call +
              "}\n";
    result += "#ifndef __NVCC__\n#pragma GCC diagnostic pop\n#endif";
    return result + edits.line_directive(whole.end);
}

// In one line, so that the lines behind it keep their numbers.
std::string TwinWriter::registration(const Kernel& kernel, const Registration& one,
                                     const Frame& frame) {
    std::string form = one.text;
    form.insert(one.name_end, "__preemptible");
    return " PENSTOCK_PREEMPTIBLE((" + one.text + "), (" + form +
           "), (::penstock::PreemptionFrame{.thread_words = " + std::to_string(frame.thread_words) +
           ", .block_words = " + std::to_string(frame.block_words) +
           ", .shared_size = " + std::to_string(frame.shared_size) +
           ", .dynamic_shared = " + (frame.dynamic_shared ? "1" : "0") +
           ", .point_count = " + std::to_string(kernel.points.size()) + "}))";
}

}  // namespace penstock::compiler
