/* A program with libdaq that drops long pings between two interfaces until SIGINT. Arguments: the folder of modules, A:B. */
#include <daq.h>
#include <signal.h>

static const DAQ_Module_t *module;
static void *handle;
static volatile sig_atomic_t is_over;

static void stop(int sig)
{
    (void)sig;
    is_over = 1;
    daq_breakloop(module, handle);
}

/* Echo requests with 100 bytes are dropped. */
static DAQ_Verdict judge(void *user, const DAQ_PktHdr_t *hdr, const uint8_t *frame)
{
    int is_long_ping = hdr->caplen == 14 + 20 + 8 + 100 && frame[12] == 8 && frame[13] == 0 && frame[23] == 1;

    (void)user;
    return is_long_ping && frame[34] == 8 ? DAQ_VERDICT_BLOCK : DAQ_VERDICT_PASS;
}

int main(int argc, char **argv)
{
    const char *folders[] = { argv[1], NULL };
    DAQ_Config_t config = { .name = argv[2], .snaplen = 65535, .timeout = 1000, .mode = DAQ_MODE_INLINE };
    char why[256] = "no module";
    int result;

    if (argc != 3 || daq_load_modules(folders) || !(module = daq_find_module("netmap")) ||
        daq_initialize(module, &config, &handle, why, sizeof(why))) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    signal(SIGINT, stop);
    if (daq_start(module, handle)) {
        fprintf(stderr, "%s\n", daq_get_error(module, handle));
        return 1;
    }
    puts("started");
    fflush(stdout);
    while (!(result = daq_acquire(module, handle, 0, judge, NULL)) && !is_over)
        ;
    fprintf(stderr, "%d: %s\n", result, daq_get_error(module, handle));
    return 1;
}
