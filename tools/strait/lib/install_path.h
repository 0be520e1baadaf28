/* SPDX-License-Identifier: MIT */
#ifndef CLI_INSTALL_PATH_H
#define CLI_INSTALL_PATH_H

/* Files that came with the command. */

/* The path of @name in the folder of this program, or where it is installed beside it. NULL if it is in neither. */
char *install_path_find(const char *name);

#endif
