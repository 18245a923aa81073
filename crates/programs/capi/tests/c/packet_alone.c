/* A packet socket on a port: the messages when it is read, and when the daemon is killed. Usage: packet_alone PORT PID */
#define _GNU_SOURCE
#include "common.h"
#include <net/if.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <sys/socket.h>

int
main(int argc, char **argv)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	char frame[FRAME];
	ssize_t n = 0;
	int fd, i;

	CHECK(argc == 3, "a port and a process");
	alarm(30);
	fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0 && errno == EPERM) {
		fprintf(stderr, "skipped: no right to open packet sockets\n");
		return 77;
	}
	address.sll_ifindex = (int)if_nametoindex(argv[1]);
	CHECK(bind(fd, (void *)&address, sizeof(address)) == 0, "bind");
	fill(frame, FRAME, 0);
	CHECK(send(fd, frame, FRAME, 0) == FRAME, "send");
	/* Nothing arrives, and standard error has the reason, once. */
	CHECK(recv(fd, frame, FRAME, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
	CHECK(recvfrom(fd, frame, FRAME, MSG_DONTWAIT, NULL, NULL) == -1 && errno == EAGAIN, "recvfrom");
	CHECK(poll_for(fd, POLLIN, 0) == 0, "poll");
	CHECK(kill(atoi(argv[2]), SIGKILL) == 0, "kill");
	/* At most a ring of frames is lost before an error; the sender does not wait for room that never comes. */
	for (i = 0; i < 100000; i++) {
		n = send(fd, frame, FRAME, 0);
		if (n < 0)
			break;
	}
	CHECK(n == -1 && errno == ENETDOWN, "%d frames", i);
	CHECK(poll_for(fd, POLLOUT, 5000) & POLLOUT, "a send would tell");
	CHECK(close(fd) == 0, "close");
	return 0;
}
