/*
 * The randomness of a simulation: the same bytes in every run.
 *
 * Rust's hash maps, the rand crate and tokio's `select!` all draw theirs from getrandom(2), and the
 * standard library lets a program put its own in place. With it a run depends on its seed alone,
 * without a line in the product for it. Only the `simulate` program is linked with this file.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

static _Thread_local uint64_t state = 0x6d616368696e6573ull;

/* splitmix64 */
static uint64_t next(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
    (void)flags;
    for (size_t i = 0; i < length; i++)
        ((unsigned char *)buffer)[i] = (unsigned char)next();
    return (ssize_t)length;
}
