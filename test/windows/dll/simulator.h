/* Forwards one call to the simulated host (windows/hnssim/loopback), which
 * listens on the loopback port that HNSSIM_PORT names. */
#ifndef SIMULATOR_H
#define SIMULATOR_H

#include <stddef.h>

/* simulate sends a call and returns the code it is answered with. *answer is
 * the text of the answer, to be freed; without a simulator it says so, and the
 * code is 0x800706BA (RPC server unavailable). */
unsigned long simulate(const char *function, const char *id, const char *payload, char **answer);

#endif
