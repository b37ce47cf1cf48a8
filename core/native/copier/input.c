#include "copier/input.h"

#include <stdlib.h>

#include "copier/packed.h"

void *input_room(Input *input, size_t count, size_t size) {
  // No list has more items than the input has bytes, so that the product cannot wrap.
  Block *block = input->failed || count > SIZE_MAX / 2 / size ? NULL : calloc(1, sizeof(Block) + count * size);
  if (!block) {
    input->failed = 1;
    return NULL;
  }
  block->next = input->blocks;
  input->blocks = block;
  return block->bytes;
}

void blocks_free(Block *blocks) {
  while (blocks) {
    Block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
}

i64 input_number(Input *input) {
  if (input->failed || input->end - input->at < 8) {
    input->failed = 1;
    return 0;
  }
  input->at += 8;
  return read_i64(input->at - 8);
}

i64 input_between(Input *input, i64 low, i64 high) {
  i64 number = input_number(input);
  if (number >= low && number <= high) return number;
  input->failed = 1;
  return 0;
}

u32 input_count(Input *input, size_t least, u32 most) {
  i64 count = input_between(input, 0, most);
  if ((size_t)count * least <= (size_t)(input->end - input->at)) return (u32)count;
  input->failed = 1;
  return 0;
}

Text input_text(Input *input) {
  Text text = {(const u8 *)"", 0};
  u32 size = input_count(input, 1, INT32_MAX);
  u8 *copy = size ? input_room(input, size, 1) : NULL;
  if (!copy) return text;
  memcpy(copy, input->at, size);
  input->at += size;
  text.bytes = copy;
  text.size = size;
  return text;
}
