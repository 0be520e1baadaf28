/* SPDX-License-Identifier: MIT */
#ifndef CLI_INSTALL_PATH_H
#define CLI_INSTALL_PATH_H

/* Files installed with the command. */

/*
 * The path of @name: beside this program in a build tree, in its library directory where installed. NULL if it is in
 * neither. The caller frees it.
 */
char *install_path_find(const char *name);

#endif
