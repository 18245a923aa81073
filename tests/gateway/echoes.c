/* echoes: sends each datagram that arrives at UDP port 7 back to where it comes from. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own))) {
		perror("echoes");
		return 1;
	}
	for (;;) {
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		char bytes[2048];
		ssize_t got = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &len);

		if (got >= 0)
			sendto(fd, bytes, got, 0, (struct sockaddr *)&from, len);
	}
}
