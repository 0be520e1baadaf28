# SPDX-License-Identifier: MIT
"""Reads the declarations of the public headers and their kernel-doc comments."""
import re
import sys

sys.dont_write_bytecode = True


class Doc:
    """A kernel-doc comment: its first line, parameters, paragraphs and Return: section."""

    def __init__(self, lines):
        head = re.match(r'(?:(struct|enum)\s+)?(\w+)(\(\))?\s+-\s+(.*)', lines[0])
        self.kind = self.name = None
        self.brief, self.params, self.body, self.returns = '', {}, [], None
        if not head:
            return
        self.kind = head.group(1) or ('function' if head.group(3) else None)
        self.name = head.group(2)
        self.brief = head.group(4)
        target = 'brief'
        for line in lines[1:]:
            param = re.match(r'@(\w+):\s*(.*)', line)
            ret = re.match(r'Return:\s*(.*)', line)
            if param and target != 'returns':
                target = param.group(1)
                self.params[target] = param.group(2)
            elif ret:
                target = 'returns'
                self.returns = ret.group(1)
            elif not line.strip():
                if target != 'returns':
                    target = 'body'
                    self.body.append('')
            elif target == 'brief':
                self.brief += ' ' + line.strip()
            elif target == 'returns':
                self.returns += ' ' + line.strip()
            elif target == 'body':
                self.body[-1] = (self.body[-1] + ' ' + line.strip()).strip()
            else:
                self.params[target] += ' ' + line.strip()
        self.body = [paragraph for paragraph in self.body if paragraph]


class Function:
    def __init__(self, header, line, declaration, doc):
        match = re.match(r'(.*?)(\w+)\s*\((.*)\)\s*$', declaration, re.S)
        self.header, self.line, self.doc = header, line, doc
        self.type, self.name = match.group(1).strip(), match.group(2)
        self.prefix = match.group(1)
        self.params = []  # (text before the name, name)
        for param in match.group(3).split(','):
            param = ' '.join(param.split())
            if param != 'void':
                name = re.search(r'(\w+)$', param).group(1)
                self.params.append((param[:-len(name)], name))


class Struct:
    def __init__(self, header, line, name, text, doc):
        self.header, self.line, self.name, self.text, self.doc = header, line, name, text, doc
        inner = re.sub(r'/\*.*?\*/', '', text[text.index('{') + 1:text.rindex('}')], flags=re.S)
        self.members = []
        for statement in inner.split(';'):
            statement = re.sub(r'\[[^]]*\]', '', statement.strip())
            if statement:
                self.members += [re.search(r'(\w+)$', part.strip()).group(1) for part in statement.split(',')]


class Header:
    """@path is the file, @name the one in #include <...>."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        with open(path) as file:
            self.text = file.read()
        self.functions, self.structs, self.typedefs, self.enums = [], [], [], []
        self.constants = []  # groups of #define lines without a blank line between, as (name, meaning)
        comments = {}  # where a comment ends, blanks included -> its Doc
        for match in re.finditer(r'/\*\*\n(.*?)\*/\n', self.text, re.S):
            lines = [re.sub(r'^\s*\*? ?', '', line) for line in match.group(1).split('\n')]
            comments[match.end()] = Doc(lines)
        for match in re.finditer(r'^STRAIT_API\s+([^;]*);', self.text, re.M):
            self.functions.append(Function(self, self.line_at(match.start()), match.group(1),
                                           comments.get(match.start())))
        for match in re.finditer(r'^struct (\w+) \{\n.*?^\};', self.text, re.M | re.S):
            self.structs.append(Struct(self, self.line_at(match.start()), match.group(1), match.group(0),
                                       comments.get(match.start())))
        for match in re.finditer(r'^typedef [^;]*?(\w+)\([^;]*\);', self.text, re.M):
            self.typedefs.append((match.group(1), match.group(0)))
        for match in re.finditer(r'^enum (\w+) \{\n(.*?)^\};', self.text, re.M | re.S):
            members = re.findall(r'^\s*(\w+)(?: = [^,\n]+)?,?[ \t]*(?:/\*\s*(.*?)\s*\*/)?$', match.group(2), re.M)
            self.enums.append((match.group(1), members))
        for group in re.findall(r'(?:^#define STRAIT_\w+ .*\n)+', self.text, re.M):
            self.constants.append(re.findall(r'^#define (\w+) .*?[ \t]*(?:/\*\s*(.*?)\s*\*/)?$', group, re.M))

    def line_at(self, offset):
        return self.text.count('\n', 0, offset) + 1


def is_device_code(path):
    """Headers of inline functions for devices declare nothing that the library exports."""
    return path.endswith('/view.h') or '/device/' in path


def read_headers(paths):
    return [Header(path, 'strait/' + path.replace('\\', '/').rsplit('/', 1)[-1]) for path in paths if not is_device_code(path)]
