// Recordings: the operator calls of one forward with everything bound but the inputs.
//
// bind_recording checks a recording and returns its number, run_recording runs it. Calls go
// straight to the functions behind the operators, whose own checks all stay, so that a recording
// can do no more than the same calls one by one. Registers hold what calls hand on; the inputs fill
// the first ones.
#pragma once

#include <pthread.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "core/operands.h"

namespace bitgnn::ops {

using Registers = std::vector<OptionalTensor>;

// What an argument is; kRegister is a tensor whose number is in `integer`. A bool is an integer.
// bitgnn/inference/recording.py writes these numbers.
enum class Kind : int64_t { kNone, kInteger, kReal, kIntegers, kConstant, kRegister };

struct Argument {
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::vector<int64_t> integers;
  OptionalTensor tensor;

  bool is_tensor() const { return kind == Kind::kConstant || kind == Kind::kRegister; }
  const OptionalTensor& in(const Registers& registers) const {
    return kind == Kind::kRegister ? registers[static_cast<size_t>(integer)] : tensor;
  }
};

// How a parameter of type T is read.
template <class T>
struct Read;

template <>
struct Read<Tensor> {
  static bool fits(const Argument& a) { return a.is_tensor(); }
  static const Tensor& get(const Argument& a, const Registers& r) { return *a.in(r); }
};

template <>
struct Read<OptionalTensor> {
  static bool fits(const Argument& a) { return a.kind == Kind::kNone || a.is_tensor(); }
  static const OptionalTensor& get(const Argument& a, const Registers& r) { return a.in(r); }
};

template <>
struct Read<int64_t> {
  static bool fits(const Argument& a) { return a.kind == Kind::kInteger; }
  static int64_t get(const Argument& a, const Registers&) { return a.integer; }
};

template <>
struct Read<bool> : Read<int64_t> {
  static bool get(const Argument& a, const Registers&) { return a.integer != 0; }
};

template <>
struct Read<double> {
  static bool fits(const Argument& a) { return a.kind == Kind::kReal; }
  static double get(const Argument& a, const Registers&) { return a.real; }
};

template <>
struct Read<std::vector<int64_t>> {
  static bool fits(const Argument& a) { return a.kind == Kind::kIntegers; }
  static const std::vector<int64_t>& get(const Argument& a, const Registers&) { return a.integers; }
};

// Only ever left out: see the general optional.
template <>
struct Read<ScalarType> {
  static bool fits(const Argument&) { return false; }
  static ScalarType get(const Argument&, const Registers&) { return ScalarType::Float; }
};

template <class T>
struct Read<std::optional<T>> {
  static bool fits(const Argument& a) { return a.kind == Kind::kNone || Read<T>::fits(a); }
  static std::optional<T> get(const Argument& a, const Registers& r) {
    if (a.kind == Kind::kNone) return std::nullopt;
    return Read<T>::get(a, r);
  }
};

struct Call {
  void (*run)(const Call& call, Registers& registers) = nullptr;
  std::vector<Argument> arguments;
  std::vector<size_t> outputs;
  std::vector<size_t> last_reads;  // registers that no later call reads
};

// One operator's function as recordings call it.
struct Callee {
  void (*run)(const Call& call, Registers& registers);
  bool (*fits)(const std::vector<Argument>& arguments);
  size_t outputs;
};

template <auto function>
struct CalleeOf;

inline void store(Tensor result, const Call& c, Registers& registers) {
  registers[c.outputs[0]] = std::move(result);
}

template <class... Results>
void store(const std::tuple<Results...>& results, const Call& c, Registers& registers) {
  size_t place = 0;
  std::apply([&](const auto&... each) { ((registers[c.outputs[place++]] = each), ...); }, results);
}

template <class T>
constexpr size_t kResults = std::tuple_size_v<T>;
template <>
constexpr size_t kResults<Tensor> = 1;

template <class Result, class... Parameters, Result (*function)(Parameters...)>
struct CalleeOf<function> {
  static constexpr size_t kOutputs = kResults<Result>;
  using Indices = std::index_sequence_for<Parameters...>;

  template <size_t... i>
  static bool all_fit(const std::vector<Argument>& arguments, std::index_sequence<i...>) {
    return arguments.size() == sizeof...(i) &&
           (Read<std::decay_t<Parameters>>::fits(arguments[i]) && ...);
  }
  template <size_t... i>
  static Result call(const Call& c, const Registers& r, std::index_sequence<i...>) {
    return function(Read<std::decay_t<Parameters>>::get(c.arguments[i], r)...);
  }
  static bool fits(const std::vector<Argument>& arguments) { return all_fit(arguments, Indices{}); }
  static void run(const Call& c, Registers& registers) {
    store(call(c, registers, Indices{}), c, registers);
  }
};

// Functions by the names of their operators.
struct Callees {
  std::map<std::string, Callee> by_name;

  template <auto function>
  void add(const std::string& name) {
    using Of = CalleeOf<function>;
    by_name[name] = {&Of::run, &Of::fits, Of::kOutputs};
  }
};

// Those of a backend, complete when its library is loaded.
template <class Backend>
Callees& callees_of() {
  static Callees callees;
  return callees;
}

struct Recording {
  std::vector<Call> calls;
  size_t inputs, registers, result;
};

// Reads the numbers that describe a recording: those of inputs and registers, the register of the
// result, and for each call its arguments (kind and value) and its outputs, counts in front.
class RecordingReader {
 public:
  RecordingReader(const std::vector<int64_t>& code, const std::vector<Tensor>& constants)
      : code_(code), constants_(constants) {}

  Recording read(const std::string& names, const Callees& callees) {
    Recording recording;
    recording.inputs = below(3, "number of inputs");
    recording.registers = below(kMostRegisters, "number of registers");
    check(recording.inputs <= recording.registers, "fewer registers than inputs");
    written_.assign(recording.registers, false);
    std::fill_n(written_.begin(), recording.inputs, true);
    recording.result = below(recording.registers, "register of the result");
    std::istringstream words(names);
    for (std::string name; words >> name;) recording.calls.push_back(call(name, callees));
    check(at_ == code_.size(), "numbers behind the last call");
    check(written_[recording.result], "a result that no call writes");
    find_last_reads(recording);
    return recording;
  }

 private:
  static constexpr size_t kMostRegisters = 1 << 16;

  static void check(bool condition, const std::string& what) {
    BITGNN_CHECK(condition, "bind_recording: code must describe calls of operators, got ", what);
  }
  int64_t next() {
    check(at_ < code_.size(), "too few numbers");
    return code_[at_++];
  }
  size_t below(size_t limit, const char* what) {
    const int64_t value = next();
    check(value >= 0 && static_cast<size_t>(value) < limit, std::string("an impossible ") + what);
    return static_cast<size_t>(value);
  }
  Argument argument() {
    Argument a;
    a.kind = static_cast<Kind>(below(static_cast<size_t>(Kind::kRegister) + 1, "kind of argument"));
    if (a.kind == Kind::kIntegers) {
      for (size_t left = below(code_.size(), "length of a list"); left > 0; --left)
        a.integers.push_back(next());
      return a;
    }
    if (a.kind == Kind::kConstant) {
      a.tensor = constants_[below(constants_.size(), "constant")];
    } else if (a.kind == Kind::kRegister) {
      a.integer = static_cast<int64_t>(below(written_.size(), "register"));
      check(written_[static_cast<size_t>(a.integer)], "a register read before it is written");
    } else if (a.kind != Kind::kNone) {
      a.integer = next();
      std::memcpy(&a.real, &a.integer, sizeof(a.real));
    }
    return a;
  }
  Call call(const std::string& name, const Callees& callees) {
    const auto found = callees.by_name.find(name);
    check(found != callees.by_name.end(), "no operator " + name);
    Call c;
    c.run = found->second.run;
    for (size_t left = below(code_.size(), "number of arguments"); left > 0; --left)
      c.arguments.push_back(argument());
    check(found->second.fits(c.arguments), "other arguments than those of " + name);
    for (size_t left = below(code_.size(), "number of outputs"); left > 0; --left) {
      c.outputs.push_back(below(written_.size(), "register"));
      check(!written_[c.outputs.back()], "a register written twice");
      written_[c.outputs.back()] = true;
    }
    check(c.outputs.size() == found->second.outputs, "other outputs than those of " + name);
    return c;
  }
  static void find_last_reads(Recording& recording) {
    std::vector<bool> is_read(recording.registers, false);
    is_read[recording.result] = true;
    for (auto c = recording.calls.rbegin(); c != recording.calls.rend(); ++c) {
      std::vector<size_t> used = c->outputs;
      for (const Argument& a : c->arguments)
        if (a.kind == Kind::kRegister) used.push_back(static_cast<size_t>(a.integer));
      for (const size_t number : used) {
        if (!is_read[number]) c->last_reads.push_back(number);
        is_read[number] = true;
      }
    }
  }

  const std::vector<int64_t>& code_;
  const std::vector<Tensor>& constants_;
  std::vector<bool> written_;
  size_t at_ = 0;
};

// The recordings of a backend by number. A number is never given twice.
class RecordingTable {
 public:
  int64_t add(Recording recording) {
    auto held = std::make_shared<const Recording>(std::move(recording));
    const std::lock_guard<std::mutex> lock(mutex_);
    recordings_[++last_] = std::move(held);
    return last_;
  }
  std::shared_ptr<const Recording> find(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = recordings_.find(number);
    return found == recordings_.end() ? nullptr : found->second;
  }
  void drop(int64_t number) {
    std::shared_ptr<const Recording> last;  // its tensors are freed behind the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = recordings_.find(number);
    if (found == recordings_.end()) return;
    last = std::move(found->second);
    recordings_.erase(found);
  }

  // A fork waits for the table, so that no child inherits it locked by another thread.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<const Recording>> recordings_;
  int64_t last_ = 0;
};

// Never destroyed: at exit, tensors may outlive what frees them.
template <class Backend>
RecordingTable& recordings_of() {
  static RecordingTable& table = *new RecordingTable;
  static const int is_watching_forks = pthread_atfork([] { recordings_of<Backend>().lock(); },
                                                      [] { recordings_of<Backend>().unlock(); },
                                                      [] { recordings_of<Backend>().unlock(); });
  static_cast<void>(is_watching_forks);
  return table;
}

}  // namespace bitgnn::ops
