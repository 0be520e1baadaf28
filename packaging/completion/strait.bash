# SPDX-License-Identifier: MIT
# Completion of strait(1) for bash: verbs and options as the command itself lists them, else file names.
_strait() {
	local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]-}
	local words

	if [ "$COMP_CWORD" -eq 1 ]; then
		words="$(strait help 2>/dev/null | sed -n 's/^  strait \([a-z]*\)  .*/\1/p') --version --help"
	elif [ "$verb" = help ]; then
		words=$(strait help 2>/dev/null | sed -n 's/^  strait \([a-z]*\)  .*/\1/p')
	elif [ "${COMP_WORDS[COMP_CWORD - 1]}" = --device ]; then
		words=$(strait info --json 2>/dev/null | sed -n 's/^ *"name": "\([a-z]*:\{0,1\}[0-9]*\)".*/\1/p')
	elif [[ $word == -* ]]; then
		words=$(strait help "$verb" 2>/dev/null | grep -o -- '--[a-z][a-z-]*' | sort -u)
	else
		return
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _strait strait
