/*
 * The wall clock of a simulation: it jumps by an hour, forwards and back, every few looks.
 *
 * Whatever the product decides by it goes wrong in every run. What it decides by is tokio's clock,
 * which the simulation steers; the wall clock is for people to read, and for the dates of certificates
 * and tokens. Only the `simulate` program is linked with this file.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static _Thread_local unsigned looks;
    static const int hours[] = {0, 1, 0, -1};

    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    /* Some day, and the same in every run. */
    now->tv_sec = 1800000000 + 3600 * hours[looks++ / 8 % 4];
    now->tv_nsec = 0;
    return 0;
}
