# What is changed in xgrammar's sources, each change as (file, place, what stands there instead): its long loops count
# their work, so that a grammar from a stranger cannot hold a thread for longer than it may; what it would get wrong is
# told; and the strings of JSON schemas are automata of src/pattern, whose lengths its parser counts.

# For all of a file's occurrences of `place`.
function(longspec_edit name place instead)
  string(MAKE_C_IDENTIFIER edits_of_${name} key)
  get_property(n_edits GLOBAL PROPERTY ${key})
  if(NOT n_edits)
    set(n_edits 0)
  endif()
  set_property(GLOBAL PROPERTY ${key}_place_${n_edits} "${place}")
  set_property(GLOBAL PROPERTY ${key}_instead_${n_edits} "${instead}")
  math(EXPR n_edits "${n_edits} + 1")
  set_property(GLOBAL PROPERTY ${key} ${n_edits})
  set_property(GLOBAL APPEND PROPERTY longspec_edited ${name})
endfunction()

# A statement before each occurrence of `place`.
function(longspec_edit_before name place statement)
  longspec_edit(${name} "${place}" "${statement} ${place}")
endfunction()

function(longspec_copy_edited name)
  string(MAKE_C_IDENTIFIER edits_of_${name} key)
  get_property(n_edits GLOBAL PROPERTY ${key})
  if(NOT n_edits)
    configure_file(${LONGSPEC_XGRAMMAR_DIR}/cpp/${name} ${copies}/${name} COPYONLY)
    return()
  endif()
  file(READ ${LONGSPEC_XGRAMMAR_DIR}/cpp/${name} text)
  math(EXPR last "${n_edits} - 1")
  foreach(i RANGE ${last})
    get_property(place GLOBAL PROPERTY ${key}_place_${i})
    get_property(instead GLOBAL PROPERTY ${key}_instead_${i})
    string(FIND "${text}" "${place}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "${LONGSPEC_XGRAMMAR_DIR}/cpp/${name} has no \"${place}\": other sources than those of "
                          "version ${LONGSPEC_XGRAMMAR_VERSION}?")
    endif()
    string(REPLACE "${place}" "${instead}" text "${text}")
  endforeach()
  set_property(GLOBAL PROPERTY ${key}_done ON)
  file(WRITE ${copies}/${name}.in "${text}")
  configure_file(${copies}/${name}.in ${copies}/${name} COPYONLY)
endfunction()

function(longspec_check_edits)
  get_property(names GLOBAL PROPERTY longspec_edited)
  foreach(name IN LISTS names)
    string(MAKE_C_IDENTIFIER edits_of_${name} key)
    get_property(done GLOBAL PROPERTY ${key}_done)
    if(NOT done)
      message(FATAL_ERROR "xgrammar has no ${name}")
    endif()
  endforeach()
endfunction()

# --- Limits. ---

foreach(name earley_parser.cc fsm.cc grammar_compiler.cc json_schema_converter.cc)
  longspec_edit(${name} "\nnamespace xgrammar {\n\n" "\n#include \"grammar/xgrammar_guard.h\"\nnamespace xgrammar {\n\n")
endforeach()
set(a_little "longspec::XgrammarTick(1);")
set(more "longspec::XgrammarTick(4);")
set(much "longspec::XgrammarTick(256);")
longspec_edit_before(earley_parser.cc "tmp_process_state_queue_.pop()" "${a_little}")
longspec_edit_before(earley_parser.cc "Scan(state, ch)" "${a_little}")
longspec_edit_before(fsm.cc "queue.pop()" "${a_little}")
longspec_edit_before(fsm.cc "dfa.AddState()" "${much}")
longspec_edit_before(fsm.cc "int n = result.NumStates()" "${much}")
longspec_edit_before(fsm.cc "auto edges_to_i" "${more}")
longspec_edit_before(fsm.cc "auto node_edges" "${more}")
longspec_edit_before(grammar_compiler.cc "tmp_rejected_indices_.clear()" "longspec::XgrammarTick(1024);")

# --- Strings. ---

# A pattern that is a line of StringRules (src/pattern/string_rules.h) is its automaton.
longspec_edit(fsm_builder.cc "#include \"fsm_builder.h\"\n" "#include \"fsm_builder.h\"\n#include \"grammar/xgrammar_strings.h\"\n")
longspec_edit(fsm_builder.cc [=[
Result<FSMWithStartEnd> RegexFSMBuilder::Build(
    const std::string& regex, GrammarBuilder* builder, const std::string& rule_hint
) {
]=] [=[
static FSMWithStartEnd StringFSM(const longspec::StringAutomaton& string) {
  const int num_states = static_cast<int>(string.edges().size());
  FSM fsm(num_states);
  std::vector<int32_t> ends;
  for (int state = 0; state < num_states; ++state) {
    for (const auto& edge : string.edges()[state]) fsm.AddEdge(state, edge.target, edge.first, edge.last);
    if (string.Accepts(state)) ends.push_back(state);
  }
  return FSMWithStartEnd(fsm, 0, std::move(ends));
}

Result<FSMWithStartEnd> RegexFSMBuilder::Build(
    const std::string& regex, GrammarBuilder* builder, const std::string& rule_hint
) {
  if (const auto string = longspec::XgrammarString(regex)) return ResultOk(StringFSM(*string));
]=])
longspec_edit(fsm_builder.cc [=[
Result<bool> RegexFSMBuilder::MatchesEmpty(const std::string& regex) {
]=] [=[
Result<bool> RegexFSMBuilder::MatchesEmpty(const std::string& regex) {
  if (const auto string = longspec::XgrammarString(regex)) {
    return ResultOk(string->Accepts(0) && string->IsRightLength(0));
  }
]=])

# It stands in a rule of its own, whose states keep their numbers, and the rule knows it if lengths are to be counted.
longspec_edit(grammar_functor.cc "#include \"grammar_functor.h\"\n" "#include \"grammar_functor.h\"\n#include \"grammar/xgrammar_strings.h\"\n")
longspec_edit(grammar_functor.cc [=[
  const auto& rule = grammar->GetRule(rule_id);
  return BuildExpressionFSM(
]=] [=[
  const auto& rule = grammar->GetRule(rule_id);
  const auto& body = grammar->GetGrammarExpr(rule.body_expr_id);
  if (body.type == ExprType::kRegex) {
    const std::string regex = grammar->GetRegexString(body);
    if (longspec::XgrammarString(regex)) return RegexFSMBuilder::Build(regex).Unwrap();
  }
  return BuildExpressionFSM(
]=])
longspec_edit(grammar_functor.cc [=[
      per_rule_fsms.push_back(rule_fsm.AddToCompleteFSM(&complete_fsm, &state_mapping));
]=] [=[
      per_rule_fsms.push_back(rule_fsm.AddToCompleteFSM(&complete_fsm, &state_mapping));
      (*grammar)->strings.emplace_back();
      const auto& body = (*grammar)->GetGrammarExpr((*grammar)->GetRule(i).body_expr_id);
      if (body.type == Grammar::Impl::GrammarExprType::kRegex) {
        auto string = longspec::XgrammarString((*grammar)->GetRegexString(body));
        if (string && string->HasLengths()) (*grammar)->strings.back() = {std::move(string), state_mapping[0]};
      }
]=])
longspec_edit(grammar_impl.h "#include \"fsm.h\"\n" "#include \"fsm.h\"\n#include \"grammar/xgrammar_strings.h\"\n")
longspec_edit(grammar_impl.h [=[
  /*! \brief Whether the grammar is optimized. */
]=] [=[
  struct String {
    std::shared_ptr<const longspec::StringAutomaton> automaton;
    int32_t first_state = 0;  // in complete_fsm
  };
  std::vector<String> strings;  // by rule

  /*! \brief The rule's automaton; nullptr where no lengths are to be counted. */
  const String* StringWithLengths(int32_t rule_id) const {
    if (rule_id < 0 || rule_id >= static_cast<int32_t>(strings.size())) return nullptr;
    return strings[rule_id].automaton ? &strings[rule_id] : nullptr;
  }

  /*! \brief Whether the grammar is optimized. */
]=])
longspec_edit(grammar.cc "         MemorySize(impl.allow_empty_rule_ids);\n" "         MemorySize(impl.allow_empty_rule_ids) + longspec::XgrammarStringBytes(impl.strings);\n")

# So may the whole of an answer be.
longspec_edit(grammar.cc "#include \"grammar_functor.h\"\n" "#include \"grammar_builder.h\"\n#include \"grammar_functor.h\"\n#include \"grammar/xgrammar_strings.h\"\n")
longspec_edit(grammar.cc [=[
  auto ebnf_string = RegexToEBNF(regex);
]=] [=[
  if (longspec::XgrammarString(regex)) {
    GrammarBuilder builder;
    const int32_t text = builder.AddRule("text", builder.AddRegex(regex));
    builder.AddRule("root", builder.AddChoices({builder.AddSequence({builder.AddRuleRef(text)})}));
    return GrammarNormalizer::Apply(builder.Get("root"));
  }
  auto ebnf_string = RegexToEBNF(regex);
]=])

# A state of such a rule counts characters in repeat_count. Token masks are made for any count, which is -1.
longspec_edit(earley_parser.cc [=[
    if ((!edge.IsCharRange()) || ch < edge.min || ch > edge.max) {
      continue;
    }
    auto new_state = state;
    new_state.element_id = edge.target;
]=] [=[
    if ((!edge.IsCharRange()) || ch < edge.min || ch > edge.max) {
      continue;
    }
    auto new_state = state;
    new_state.element_id = edge.target;
    if (string != nullptr && state.repeat_count >= 0) {
      new_state.repeat_count += string->automaton->BeginsCharacter(state.element_id - string->first_state);
      if (!string->automaton->CanEnd(edge.target - string->first_state, new_state.repeat_count)) continue;
    }
]=])
longspec_edit(earley_parser.cc [=[
void EarleyParser::AdvanceFsm(const ParserState& state, const uint8_t ch) {
]=] [=[
void EarleyParser::AdvanceFsm(const ParserState& state, const uint8_t ch) {
  const auto* string = grammar_->StringWithLengths(state.rule_id);
]=])
longspec_edit(earley_parser.cc [=[
void EarleyParser::Complete(const ParserState& state, bool debug_print, bool marker_present) {
]=] [=[
void EarleyParser::Complete(const ParserState& state, bool debug_print, bool marker_present) {
  if (const auto* string = grammar_->StringWithLengths(state.rule_id);
      string != nullptr && state.repeat_count >= 0 && !string->automaton->IsRightLength(state.repeat_count)) {
    return;
  }
]=])
# Near a bound, what a mask allows is tried; tokens that are short enough are not.
longspec_edit(grammar_matcher.cc [=[
    if (state.char_budget_deadline >= 0) {
      int32_t remaining_chars = state.char_budget_deadline - GetCurrentCharIndex();
]=] [=[
    if (const auto* string = grammar_->StringWithLengths(state.rule_id)) {
      const int64_t free = string->automaton->FreeCharacters(state.repeat_count);
      if (free < tokenizer_info_.ImplPtr()->GetMaxTokenChars()) {
        FillBitmaskForCharBudgetBoundary(adaptive_token_mask, static_cast<int32_t>(free));
        continue;
      }
    }
    if (state.char_budget_deadline >= 0) {
      int32_t remaining_chars = state.char_budget_deadline - GetCurrentCharIndex();
]=])
longspec_edit(grammar_matcher.cc [=[
      common_prefix_length = std::min(common_prefix_length, previous_matched_size);
]=] [=[
      if (common_prefix_length > previous_matched_size && !has_char_budget_rules_) {
        continue;  // it begins like one that was rejected
      }
      common_prefix_length = std::min(common_prefix_length, previous_matched_size);
]=])
longspec_edit(grammar_matcher.cc [=[
  for (int32_t index : byte_rejected_tokens) {
]=] [=[
  if (!has_char_budget_rules_) {
    byte_rejected_tokens.clear();  // no string has edges of whole tokens
  }
  for (int32_t index : byte_rejected_tokens) {
]=])
longspec_edit(grammar_matcher.cc [=[
      result += static_cast<uint8_t>(next_char);
      Advance(next_char);
]=] [=[
      if (!Advance(next_char)) {
        break;
      }
      result += static_cast<uint8_t>(next_char);
]=])

# The converter of schemas passes such a pattern on. What any other becomes may hold quotation marks that end the
# string: its automata of repetitions above 128 forget that they are within one.
longspec_edit(json_schema_converter.cc "#include \"json_schema_converter.h\"\n" "#include \"json_schema_converter.h\"\n#include \"grammar/xgrammar_strings.h\"\n")
longspec_edit(json_schema_converter.cc [=[
  bool can_use_fsm = !force_cfg_expansion;
]=] [=[
  if (longspec::XgrammarString(regex)) {
    if (!json_string) longspec::XgrammarWarn("pattern, format and lengths of strings that are not written as JSON");
    return builder_.AddRegex(regex, json_string);
  }
  if (json_string) longspec::XgrammarWarn("a pattern: " + regex);
  bool can_use_fsm = !force_cfg_expansion;
]=])
# Names that are free are none of those that are listed, however they are written.
longspec_edit(json_schema_converter.cc [=[
  // Build trie from property names
]=] [=[
  longspec::StringRules other_names;
  for (const auto& property : properties) other_names.others.push_back(property.name);
  return Sequence(
      {ByteString("\""),
       builder_.AddRegex(longspec::StringRulesLine(other_names), /*json_string=*/true),
       ByteString("\"")}
  );
  // Build trie from property names
]=])
# Half a pair of surrogates is no character.
longspec_edit(json_schema_converter.cc [=[
  builder_.UpdateRuleBody(kBasicEscape, Choice({escaped_character, unicode_escape}));
]=] [=[
  int32_t digit = hexadecimal_character;
  int32_t first = builder_.AddCharacterClass({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
  int32_t d = builder_.AddCharacterClass({{'D', 'D'}, {'d', 'd'}});
  int32_t none = builder_.AddCharacterClass({{'0', '7'}});
  int32_t high = builder_.AddCharacterClass({{'8', '9'}, {'A', 'B'}, {'a', 'b'}});
  int32_t low = builder_.AddCharacterClass({{'C', 'F'}, {'c', 'f'}});
  builder_.UpdateRuleBody(
      kBasicEscape,
      Choice(
          {escaped_character,
           Sequence({ByteString("u"), first, digit, digit, digit}),
           Sequence({ByteString("u"), d, none, digit, digit}),
           Sequence({ByteString("u"), d, high, digit, digit, ByteString("\\u"), d, low, digit, digit})}
      )
  );
]=])

# --- Numbers. ---

# Numbers between bounds have up to six digits behind the point. Where there is none, the empty text would be the answer.
longspec_edit(json_schema_converter.cc [=[
    return RegexExpression(
        GenerateFloatRangeRegex(start, end, /*precision=*/6, exclusive_start, exclusive_end),
]=] [=[
    const std::string range = GenerateFloatRangeRegex(start, end, /*precision=*/6, exclusive_start, exclusive_end);
    if (range == "^()$") {
      XGRAMMAR_LOG(WARNING) << "a range of numbers without one of six digits behind the point";
    }
    return RegexExpression(
        range,
]=])

# Listed values that doubles would change have their spelling beside them (src/grammar/json_schema.cc).
longspec_edit(json_schema_converter.cc [=[
  spec.json_value = schema.at("const").serialize();
]=] [=[
  if (schema.count("(spellings)")) {
    spec.json_value = schema.at("(spellings)").get<picojson::array>().at(0).get<std::string>();
    return ResultOk(std::move(spec));
  }
  spec.json_value = schema.at("const").serialize();
]=])
longspec_edit(json_schema_converter.cc [=[
  for (const auto& value : enum_array) {
    spec.json_values.push_back(value.serialize());
]=] [=[
  if (schema.count("(spellings)")) {
    for (const auto& spelling : schema.at("(spellings)").get<picojson::array>()) {
      spec.json_values.push_back(spelling.get<std::string>());
    }
    return ResultOk(std::move(spec));
  }
  for (const auto& value : enum_array) {
    spec.json_values.push_back(value.serialize());
]=])

# --- UTF-8. ---

# Surrogates have no bytes, and no character has two forms.
longspec_edit(grammar_functor.cc [=[
  constexpr uint32_t width_ends[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
]=] [=[
  constexpr uint32_t width_ends[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, 0x10FFFF};
]=])
longspec_edit(grammar_functor.cc [=[
      AddCharacterRange(from, to, CodepointToPackedUTF8(low), CodepointToPackedUTF8(end));
]=] [=[
      if (width_end != 0xDFFF) {
        AddCharacterRange(from, to, CodepointToPackedUTF8(low), CodepointToPackedUTF8(end));
      }
]=])
longspec_edit(fsm_builder.cc [=[
      uint32_t multi_byte_low = std::max<uint32_t>(low, kMax1ByteUnicode + 1);
      AddPackedUTF8RangeEdges(
          *fsm, from, to, CodepointToPackedUTF8(multi_byte_low), CodepointToPackedUTF8(high)
      );
]=] [=[
      constexpr uint32_t widths[][2] = {{0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
      for (const auto& [width_begin, width_end] : widths) {
        const uint32_t first = std::max<uint32_t>(low, width_begin), last = std::min<uint32_t>(high, width_end);
        if (first <= last) {
          AddPackedUTF8RangeEdges(*fsm, from, to, CodepointToPackedUTF8(first), CodepointToPackedUTF8(last));
        }
      }
]=])

# --- Masks of tokens. ---

# One is made when an answer first comes to its state: of those of thirty tools' schemas an answer needs few.
# What made all of them ahead stands behind a return and is not reached.
longspec_edit(compiled_grammar_impl.h "#include <cstdint>\n" "#include <cstdint>\n#include <functional>\n#include <mutex>\n")
longspec_edit(compiled_grammar_impl.h [=[
  /*! \brief Mapping from the parser state to the adaptive token mask. */
  std::unordered_map<ParserState, AdaptiveTokenMask, StateHashForCache, StateEqualForCache>
      adaptive_token_mask_cache;
]=] [=[
  /*! \brief Mapping from the parser state to the adaptive token mask, of states that were asked for. */
  mutable std::unordered_map<ParserState, AdaptiveTokenMask, StateHashForCache, StateEqualForCache>
      adaptive_token_mask_cache;
  mutable std::mutex mask_mutex;
  std::function<AdaptiveTokenMask(const ParserState&)> make_mask;

  /*! \brief The mask of a state. It stays where it is. */
  const AdaptiveTokenMask& MaskOf(const ParserState& state) const {
    const std::lock_guard<std::mutex> lock(mask_mutex);
    const auto known = adaptive_token_mask_cache.find(state);
    if (known != adaptive_token_mask_cache.end()) return known->second;
    return adaptive_token_mask_cache.emplace(state, make_mask(state)).first->second;
  }
]=])
longspec_edit(compiled_grammar.cc [=[
std::size_t MemorySize(const CompiledGrammar::Impl& impl) {
]=] [=[
std::size_t MemorySize(const CompiledGrammar::Impl& impl) {
  const std::lock_guard<std::mutex> lock(impl.mask_mutex);
]=])
longspec_edit(grammar_compiler.cc [=[
  std::unordered_map<int32_t, DynamicBitset> tag_dispatch_rule_id_to_second_slicing_bitset;
]=] [=[
  const auto bitsets = std::make_shared<std::unordered_map<int32_t, DynamicBitset>>();
  auto& tag_dispatch_rule_id_to_second_slicing_bitset = *bitsets;
]=])
longspec_edit(grammar_compiler.cc [=[
  std::optional<ThreadPool> thread_pool;
  std::optional<std::mutex> adaptive_token_mask_cache_mutex;
]=] [=[
  compiled_grammar_impl->make_mask = [bitsets, impl = compiled_grammar_impl.get()](const ParserState& state) {
    const Grammar& grammar = impl->grammar;
    ParserState begin(state.rule_id, state.sequence_id, state.element_id, ParserState::kNoPrevInputPos, 0);
    begin.repeat_count = grammar->StringWithLengths(state.rule_id) != nullptr ? -1 : 0;
    std::optional<RuleLevelCache> no_cache;
    return GrammarMatcherForTokenMaskCache(grammar, begin, *bitsets, impl->tokenizer_info, no_cache)
        .GetAdaptiveTokenMask(state.rule_id == grammar->GetRootRuleId());
  };
  return CompiledGrammar(compiled_grammar_impl);
  std::optional<ThreadPool> thread_pool;
  std::optional<std::mutex> adaptive_token_mask_cache_mutex;
]=])
longspec_edit(grammar_matcher.cc [=[
  const auto& adaptive_token_mask_cache = compiled_grammar_->adaptive_token_mask_cache;
]=] "")
longspec_edit(grammar_matcher.cc "decltype(adaptive_token_mask_cache.cbegin())" "const AdaptiveTokenMask*")
longspec_edit(grammar_matcher.cc [=[
    auto adaptive_token_mask_it = adaptive_token_mask_cache.find(state);
    XGRAMMAR_CHECK(adaptive_token_mask_it != adaptive_token_mask_cache.end()) << state;
]=] [=[
    const AdaptiveTokenMask* adaptive_token_mask_it = &compiled_grammar_->MaskOf(state);
]=])
longspec_edit(grammar_matcher.cc "adaptive_token_mask_it->second" "*adaptive_token_mask_it")

# --- What nobody here asks for, and takes the compiler long. ---

set(LONGSPEC_XGRAMMAR_LEFT_OUT lark_converter.cc)
longspec_edit(grammar.cc [=[
  return LarkToGrammar(lark_string, tokenizer_info, named_grammars);
]=] [=[
  throw std::logic_error("grammars of Lark are left out");
]=])
