// Runs Clang on the file, and puts the output together.
#include "compiler/transform.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Basic/Version.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Tooling/Core/Replacement.h>
#include <clang/Tooling/Tooling.h>
#include <llvm/Support/VirtualFileSystem.h>

#include <algorithm>
#include <filesystem>

#include "compiler/frame.h"
#include "compiler/legality.h"
#include "compiler/position_copies.h"
#include "compiler/report_maker.h"
#include "compiler/twin_writer.h"

namespace penstock::compiler {

namespace {

namespace tooling = clang::tooling;

// Returns sizeof(penstock::preemption::Read), or what it may be at most if it is not declared.
unsigned read_size(clang::ASTContext& context) {
    struct Finder : clang::RecursiveASTVisitor<Finder> {
        const clang::CXXRecordDecl* found = nullptr;
        bool VisitCXXRecordDecl(const clang::CXXRecordDecl* record) {
            if (record->isCompleteDefinition() && record->getName() == "Read" &&
                record->getQualifiedNameAsString() == "penstock::preemption::Read")
                found = record;
            return found == nullptr;
        }
    } finder;
    finder.TraverseDecl(context.getTranslationUnitDecl());
    if (finder.found == nullptr) return kReadSize;
    return static_cast<unsigned>(
        context.getTypeSizeInChars(context.getRecordType(finder.found)).getQuantity());
}

class Transformer {
public:
    Transformer(clang::ASTContext& context, clang::DiagnosticsEngine& engine,
                const Directives& directives, const TransformOptions& options,
                TransformResult& result, std::vector<Move>* moves)
        : text_(context),
          diagnostics_(engine),
          directives_(directives),
          options_(options),
          result_(result),
          moves_(moves) {}

    void run() {
        const std::vector<Kernel> kernels = find_kernels(text_, directives_, diagnostics_);
        const unsigned read = read_size(text_.context());
        PositionCopies copies(text_, callees_, diagnostics_);
        TwinWriter writer(text_, options_.input, diagnostics_);
        for (const Kernel& kernel : kernels) {
            if (!check(kernel)) continue;
            std::vector<std::unique_ptr<Body>> bodies;
            for (const clang::FunctionDecl* instance : kernel.instances)
                bodies.push_back(std::make_unique<Body>(instance, callees_));
            const Frame frame = make_frame(text_, kernel, bodies, callees_, read, diagnostics_,
                                           moves_);
            if (diagnostics_.has_error()) continue;
            add(writer.place(kernel), writer.write(kernel, frame, copies));
            for (const Registration& one : kernel.registrations)
                add(one.behind, TwinWriter::registration(kernel, one, frame));
            result_.report.push_back(make_report(text_, kernel, frame, bodies));
        }
        for (const auto& copy : copies.copies(options_.input)) add(copy.offset, copy.text);
        if (diagnostics_.has_error()) return;
        add_includes();
        finish();
    }

private:
    bool check(const Kernel& kernel) {
        if (kernel.instances.empty()) {
            diagnostics_.warn(kernel.pattern->getLocation(),
                              "kernel template '" + kernel.name() +
                                  "' has points and is never instantiated here, so it is left as "
                                  "it is; name it in PENSTOCK_KERNEL");
            return false;
        }
        if (kernel.registrations.empty())
            diagnostics_.warn(kernel.pattern->getLocation(),
                              "kernel '" + kernel.name() +
                                  "' has points, and no PENSTOCK_KERNEL in this file names it: "
                                  "launches use the form that spins");
        const Span span = text_.span(kernel.pattern->getSourceRange());
        check_names(kernel);
        check_conditions(span, kernel);
        for (const clang::FunctionDecl* instance : kernel.instances)
            check_callees(instance, kernel);
        return true;
    }

    void check_names(const Kernel& kernel) {
        const std::string name = kernel.name();
        const std::string ends[] = {name + "__body", name + "__preemptible"};
        for (const RawToken* token = text_.token_from(0); token != nullptr;
             token = text_.token_from(token->end())) {
            const std::string word = text_.token_text(*token);
            const Span span = text_.span(kernel.pattern->getSourceRange());
            const bool local = span.holds(token->offset) && word.rfind("penstock_", 0) == 0;
            if (local || word == ends[0] || word == ends[1]) {
                diagnostics_.error(text_.location(token->offset),
                                   "the name '" + word + "' is taken by the preemptible form of '" +
                                       name + "'; rename it");
                return;
            }
        }
    }

    void check_conditions(Span span, const Kernel& kernel) {
        for (const CompilerCondition& one : directives_.conditions)
            if (span.holds(text_.offset(one.at)))
                diagnostics_.error(one.at, "a condition on " + one.macro + " in kernel '" +
                                               kernel.name() +
                                               "' with points, or in a function that it calls: "
                                               "the compilers see other variables than this tool; "
                                               "move it into a function that the kernel passes "
                                               "values to");
    }

    void check_callees(const clang::FunctionDecl* function, const Kernel& kernel) {
        const Accesses accesses(function);
        for (const clang::Stmt* statement : accesses.statements()) {
            const auto* call = llvm::dyn_cast<clang::CallExpr>(statement);
            const auto* callee = call == nullptr ? nullptr : call->getDirectCallee();
            const clang::FunctionDecl* definition = nullptr;
            if (callee == nullptr || !callee->hasBody(definition)) continue;
            if (!text_.holds(definition->getLocation()) || !checked_.insert(definition).second)
                continue;
            check_conditions(text_.span(definition->getSourceRange()), kernel);
            check_callees(definition, kernel);
        }
    }

    void replace(Span span, const std::string& text) {
        const tooling::Replacement one(options_.input, span.begin, span.end - span.begin, text);
        if (auto error = replacements_.add(one)) {
            diagnostics_.error(text_.location(span.begin),
                               "two edits meet here: " + llvm::toString(std::move(error)));
        }
    }

    void add(unsigned offset, const std::string& text) {
        if (!text.empty()) replace({offset, offset}, text);
    }

    // Names of included files are relative to the folder of the input; the output may be elsewhere.
    void add_includes() {
        namespace fs = std::filesystem;
        if (options_.output.empty()) return;
        std::error_code error;
        const fs::path from = fs::weakly_canonical(fs::path(options_.input), error).parent_path();
        const fs::path to = fs::weakly_canonical(fs::path(options_.output), error).parent_path();
        if (from == to) return;
        for (const IncludeDirective& one : directives_.includes) {
            const unsigned begin = text_.offset(one.name.getBegin());
            const Span span{begin, text_.token_from(begin)->end()};
            const std::string name = text_.text(Span{span.begin + 1, span.end - 1});
            const fs::path beside = from / name;
            if (fs::path(name).is_absolute() || !fs::exists(beside, error)) continue;
            if (!fs::equivalent(beside, one.path, error)) continue;
            replace(span, "\"" + fs::relative(beside, to, error).string() + "\"");
        }
    }

    void finish() {
        auto text = tooling::applyAllReplacements(text_.text(), replacements_);
        if (!text) {
            diagnostics_.error(text_.location(0), llvm::toString(text.takeError()));
            return;
        }
        const Edits edits(text_, options_.input);
        result_.text = "// Written by penstock preempt from " +
                       std::filesystem::path(options_.input).filename().string() +
                       ": edit that file.\n#include \"penstock/device/preemption.cuh\"\n#include "
                       "\"penstock/preemption.h\"\n#ifdef __NVCC__\n#pragma nv_diag_suppress "
                       "20199  // of #pragma preempt\n#endif";
        result_.text += edits.line_directive(0) + *text;
        result_.ok = true;
    }

    SourceText text_;
    Diagnostics diagnostics_;
    const Directives& directives_;
    const TransformOptions& options_;
    TransformResult& result_;
    std::vector<Move>* moves_;
    Callees callees_;
    tooling::Replacements replacements_;
    std::set<const clang::FunctionDecl*> checked_;
};

// LLVM 16 lists files by pointers, later versions by references.
#if CLANG_VERSION_MAJOR < 18
std::string name_of(const clang::FileEntry* file) { return file->getName().str(); }
#endif
template <class T>
std::string name_of(const T& file) {
    return file.getName().str();
}

class Action : public clang::ASTFrontendAction {
public:
    Action(const TransformOptions& options, TransformResult& result, std::vector<Move>* moves)
        : options_(options), result_(result), moves_(moves) {}

protected:
    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                          llvm::StringRef) override {
        directives_.observe(compiler.getPreprocessor());
        struct Consumer : clang::ASTConsumer {
            explicit Consumer(Action& action) : action_(action) {}
            void HandleTranslationUnit(clang::ASTContext& context) override {
                action_.handle(context);
            }
            Action& action_;
        };
        return std::make_unique<Consumer>(*this);
    }

private:
    // Nothing is emitted from a tree that Clang has recovered from an error.
    void handle(clang::ASTContext& context) {
        clang::DiagnosticsEngine& engine = getCompilerInstance().getDiagnostics();
        clang::SourceManager& manager = context.getSourceManager();
        for (auto file = manager.fileinfo_begin(); file != manager.fileinfo_end(); ++file)
            result_.files.push_back(name_of(file->first));
        std::sort(result_.files.begin(), result_.files.end());
        if (engine.hasErrorOccurred()) return;
        Transformer(context, engine, directives_, options_, result_, moves_).run();
    }

    const TransformOptions& options_;
    TransformResult& result_;
    std::vector<Move>* moves_;
    Directives directives_;
};

bool run_once(const TransformOptions& options, const std::string& text, TransformResult& result,
              std::vector<Move>* moves) {
    std::vector<std::string> arguments{"clang++", "-fsyntax-only"};
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    arguments.insert(arguments.end(), {"-x", "c++", options.input});
    // A text that --hoist has changed stands in for the file.
    auto memory = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
    auto overlay = llvm::makeIntrusiveRefCnt<llvm::vfs::OverlayFileSystem>(
        llvm::vfs::getRealFileSystem());
    overlay->pushOverlay(memory);
    if (!text.empty())
        memory->addFile(std::filesystem::absolute(options.input).string(), 0,
                        llvm::MemoryBuffer::getMemBuffer(text));
    auto files = llvm::makeIntrusiveRefCnt<clang::FileManager>(clang::FileSystemOptions(), overlay);
    tooling::ToolInvocation invocation(arguments, std::make_unique<Action>(options, result, moves),
                                       files.get());
    return invocation.run();
}

// Moves statements in a text, without a change of the number of any line.
std::string moved(std::string text, std::vector<Move> moves) {
    std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.to > b.to; });
    for (const Move& one : moves) {
        std::string statement = text.substr(one.statement.begin,
                                            one.statement.end - one.statement.begin);
        std::string gap(statement.size(), ' ');
        for (size_t i = 0; i < statement.size(); ++i)
            if (statement[i] == '\n') gap[i] = '\n', statement[i] = ' ';
        gap[0] = ';';
        text.insert(one.to, " " + statement);
        text.replace(one.statement.begin, gap.size(), gap);
    }
    return text;
}

}  // namespace

TransformResult transform(const TransformOptions& options) {
    std::string text;
    constexpr int kMovesMax = 16;  // each pass moves a point out of one condition
    for (int pass = 0;; ++pass) {
        TransformResult result;
        std::vector<Move> moves;
        const bool hoists = options.hoist && pass < kMovesMax;
        const bool ran = run_once(options, text, result, hoists ? &moves : nullptr);
        result.ok = result.ok && ran;
        if (moves.empty() || !ran) return result;
        if (text.empty()) {
            auto buffer = llvm::MemoryBuffer::getFile(options.input);
            if (!buffer) return result;
            text = (*buffer)->getBuffer().str();
        }
        text = moved(text, moves);
    }
}

}  // namespace penstock::compiler
