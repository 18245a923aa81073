/* A sender whose daemon is killed gets the error that the network is down. Usage: pcap_alone PORT PID */
#include <errno.h>
#include <pcap.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(cond, ...)                                                              \
	do {                                                                          \
		if (!(cond)) {                                                        \
			fprintf(stderr, "%s:%d: not true: %s (errno %d): ", __FILE__, __LINE__, #cond, errno); \
			fprintf(stderr, "" __VA_ARGS__);                              \
			fprintf(stderr, "\n");                                        \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

int
main(int argc, char **argv)
{
	static unsigned char frame[60];
	char errbuf[PCAP_ERRBUF_SIZE];
	struct pollfd f = { .events = POLLOUT };
	pcap_t *p;
	int i, n;

	CHECK(argc == 3, "a port and a process");
	alarm(30);
	p = pcap_open_live(argv[1], 65535, 1, 100, errbuf);
	CHECK(p, "%s", errbuf);
	f.fd = pcap_get_selectable_fd(p);
	CHECK(pcap_inject(p, frame, sizeof(frame)) == sizeof(frame), "%s", pcap_geterr(p));
	CHECK(kill(atoi(argv[2]), SIGKILL) == 0, "kill");
	/* At most a ring of frames is lost before an error; the sender does not wait for room that never comes. */
	for (i = 0; i < 100000; i++) {
		errno = 0;
		n = pcap_inject(p, frame, sizeof(frame));
		if (n < 0)
			break;
	}
	CHECK(n == -1 && errno == ENETDOWN, "%d frames", i);
	CHECK(strcmp(pcap_geterr(p), "send: Network is down") == 0, "%s", pcap_geterr(p));
	CHECK(poll(&f, 1, 5000) == 1 && (f.revents & POLLOUT), "a send would tell: %x", f.revents);
	pcap_close(p);
	return 0;
}
