" SPDX-License-Identifier: Apache-2.0
"
" Suggestions at the cursor while one types, as plugins for code completion show them: what test_vim.py runs in vim.
" g:suggest_url is that of /infill. A suggestion is virtual text, which Tab makes part of the file.

let s:job = v:null
let s:shown = ''

highlight default link Suggestion Comment
call prop_type_add('suggestion', {'highlight': 'Suggestion'})

function s:Ask(request, Answer) abort
  if s:job isnot v:null
    call job_stop(s:job)  " nobody waits for it any more
  endif
  let s:job = job_start(['curl', '--silent', '--no-buffer', '--header', 'Content-Type: application/json',
        \ '--data', '@-', g:suggest_url], {'out_cb': a:Answer})
  call ch_sendraw(s:job, json_encode(a:request))
  call ch_close_in(s:job)
endfunction

" Of other parts of the file, before anything is asked: then they are known.
function s:Warm() abort
  call s:Ask({'input_prefix': '', 'input_suffix': '', 'input_extra': s:Chunks(), 'prompt': '', 'n_predict': 0,
        \ 'temperature': 0.0, 'samplers': [], 'cache_prompt': v:true, 't_max_prompt_ms': 1, 't_max_predict_ms': 1,
        \ 'response_fields': ['']}, {-> 0})
endfunction

function s:Chunks() abort
  return [{'filename': expand('%:t'), 'time': localtime(), 'text': join(getline(1, 8), "\n")}]
endfunction

function s:Suggest() abort
  call s:Hide()
  let before = strpart(getline('.'), 0, col('.') - 1)
  let place = [line('.'), col('.')]
  call s:Ask({'id_slot': 0, 'input_prefix': join(getline(1, line('.') - 1) + [''], "\n"),
        \ 'input_suffix': join([strpart(getline('.'), col('.') - 1)] + getline(line('.') + 1, '$') + [''], "\n"),
        \ 'input_extra': s:Chunks(), 'prompt': before, 'n_predict': 32, 'stop': [], 'n_indent': indent('.'),
        \ 'top_k': 40, 'top_p': 0.9, 'samplers': ['top_k', 'top_p', 'infill'], 'stream': v:false,
        \ 'cache_prompt': v:true, 't_max_prompt_ms': 500, 't_max_predict_ms': 10000,
        \ 'response_fields': ['content', 'timings/prompt_n', 'truncated', 'tokens_cached']},
        \ {_, text -> s:Show(place, text)})
endfunction

function s:Show(place, text) abort
  if mode() !=# 'i' || a:place != [line('.'), col('.')] || a:text !~# '"content":"'
    return
  endif
  let s:shown = split(json_decode(a:text).content, "\n", 1)[0]
  if s:shown !=# ''
    call prop_add(a:place[0], a:place[1], {'type': 'suggestion', 'text': s:shown})
    redraw
  endif
endfunction

function s:Hide() abort
  let s:shown = ''
  call prop_remove({'type': 'suggestion', 'all': v:true})
endfunction

function s:Accept() abort
  let taken = s:shown
  call s:Hide()
  return taken ==# '' ? "\<Tab>" : taken
endfunction

inoremap <expr> <Tab> <SID>Accept()
autocmd CursorMovedI * call s:Suggest()
autocmd InsertLeave * call s:Hide()
call s:Warm()
