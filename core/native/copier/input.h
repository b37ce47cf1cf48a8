// Reads the bytes of a program or a layout: numbers, texts and lists, each checked against the end. After a
// fault all answers are zero, and `failed` stays set.
#ifndef TWINSTORE_COPIER_INPUT_H
#define TWINSTORE_COPIER_INPUT_H

#include "copier/program.h"

// Blocks of memory that are freed together.
typedef struct Block {
  struct Block *next;
  u8 bytes[];
} Block;

typedef struct {
  const u8 *at, *end;
  Block *blocks;
  int failed;
} Input;

// Zeroed memory that lives as long as the blocks; NULL, and the input has failed, where there is none.
void *input_room(Input *input, size_t count, size_t size);
void blocks_free(Block *blocks);

i64 input_number(Input *input);
// A number from low to high.
i64 input_between(Input *input, i64 low, i64 high);
// The number of items of a list that has at least `least` bytes for each.
u32 input_count(Input *input, size_t least, u32 most);
// A copy of the bytes, which need not outlive the call.
Text input_text(Input *input);

#endif
