/* SPDX-License-Identifier: MIT */
#ifndef CLI_OWN_H
#define CLI_OWN_H

/* Files that came with the command. */

/* The path of @name in the folder of this program, or where it is installed beside it. NULL if it is in neither. */
char *own_file(const char *name);

#endif
