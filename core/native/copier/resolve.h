// What a program refers to within itself: checked once, so that the checker need not look.
#ifndef TWINSTORE_COPIER_RESOLVE_H
#define TWINSTORE_COPIER_RESOLVE_H

#include "copier/input.h"

void resolve_nodes(Input *input, Node *nodes, u32 count);
void resolve_roles(Input *input, const Program *program);

#endif
