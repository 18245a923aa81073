/* A program that takes no notice of POLLHUP polls while the daemon ends: it is told at once, then once a second, so that
 * it does not use up a CPU. Usage: daemon_ends PORT; it says "open", and gets a line when the daemon has ended. */
#include "common.h"
#include <time.h>

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	struct port at;
	int other[2], told = 0, polls = 0;
	double start;

	CHECK(argc == 2, "a port");
	alarm(60);
	at = open_port(argv[1]);
	CHECK(pipe(other) == 0, "a pipe");
	puts("open");
	fflush(stdout);
	CHECK(getchar() != EOF, "a line");
	for (start = now(); now() - start < 2.5; polls++) {
		struct pollfd fds[2] = { { at.fd, POLLIN, 0 }, { other[0], POLLIN, 0 } };

		CHECK(poll(fds, 2, 10000) >= 0, "poll");
		told += (fds[0].revents & POLLHUP) != 0;
		CHECK(polls > 0 || told == 1, "told at once");
	}
	CHECK(told >= 2 && told <= 4 && polls < 20, "told %d times in %d polls", told, polls);
	/* Other descriptors are not waited for longer. */
	CHECK(write(other[1], "x", 1) == 1, "a byte");
	start = now();
	{
		struct pollfd fds[2] = { { at.fd, POLLIN, 0 }, { other[0], POLLIN, 0 } };

		CHECK(poll(fds, 2, 10000) > 0 && fds[1].revents == POLLIN && now() - start < 0.5, "at once");
	}
	return 0;
}
