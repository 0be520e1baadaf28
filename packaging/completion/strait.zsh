#compdef strait
# SPDX-License-Identifier: MIT
# Completion of strait(1) for zsh: verbs and options as the command itself lists them, else file names.
_strait() {
	local -a found
	if (( CURRENT == 2 )); then
		found=(${(f)"$(strait help 2>/dev/null | sed -n 's/^  strait \([a-z]*\)  *\(.*\)/\1:\2/p')"})
		_describe verb found
	elif [[ $PREFIX == -* ]]; then
		found=(${(f)"$(strait help $words[2] 2>/dev/null | grep -o -- '--[a-z][a-z-]*' | sort -u)"})
		compadd -a found
	else
		_files
	fi
}
_strait "$@"
