#include <winsock2.h>
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator.h"

#define UNAVAILABLE 0x800706BAul

/* The network lock is held if nobody else gets it. The thread that calls is
 * never the one that holds it, because the plugin keeps that for itself. */
static const char *lock_held(void)
{
    HANDLE mutex = OpenMutexA(SYNCHRONIZE, FALSE, "TigeraCalicoCNINetworkMutex");
    const char *held = "false";
    if (mutex == NULL)
        return held;
    if (WaitForSingleObject(mutex, 0) == WAIT_TIMEOUT)
        held = "true";
    else
        ReleaseMutex(mutex);
    CloseHandle(mutex);
    return held;
}

static SOCKET dial(void)
{
    struct sockaddr_in to = {0};
    WSADATA data;
    SOCKET s;
    char port[16];

    if (GetEnvironmentVariableA("HNSSIM_PORT", port, sizeof port) == 0 || WSAStartup(MAKEWORD(2, 2), &data) != 0)
        return INVALID_SOCKET;
    s = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_family = AF_INET;
    to.sin_port = htons((u_short)atoi(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (s != INVALID_SOCKET && connect(s, (struct sockaddr *)&to, sizeof to) != 0) {
        closesocket(s);
        s = INVALID_SOCKET;
    }
    return s;
}

static int send_all(SOCKET s, const char *bytes, size_t length)
{
    while (length > 0) {
        int sent = send(s, bytes, (int)length, 0);
        if (sent <= 0)
            return 0;
        bytes += sent;
        length -= (size_t)sent;
    }
    return 1;
}

static int receive_all(SOCKET s, char *bytes, size_t length)
{
    while (length > 0) {
        int got = recv(s, bytes, (int)length, 0);
        if (got <= 0)
            return 0;
        bytes += got;
        length -= (size_t)got;
    }
    return 1;
}

/* receive_answer reads "<code> <length>\n" and so many bytes. */
static char *receive_answer(SOCKET s, unsigned long *code)
{
    char line[64];
    size_t n = 0;
    unsigned long length;
    char *text;

    do {
        if (n == sizeof line - 1 || !receive_all(s, line + n, 1))
            return NULL;
    } while (line[n++] != '\n');
    line[n] = 0;
    if (sscanf(line, "%lu %lu", code, &length) != 2)
        return NULL;
    text = malloc(length + 1);
    if (text == NULL || !receive_all(s, text, length)) {
        free(text);
        return NULL;
    }
    text[length] = 0;
    return text;
}

static char *copy(const char *text)
{
    char *out = malloc(strlen(text) + 1);
    if (out != NULL)
        strcpy(out, text);
    return out;
}

unsigned long simulate(const char *function, const char *id, const char *payload, char **answer)
{
    char line[256];
    unsigned long code = UNAVAILABLE;
    SOCKET s = dial();

    *answer = NULL;
    if (s != INVALID_SOCKET) {
        snprintf(line, sizeof line, "%s %s %s %lu\n", function, *id ? id : "-", lock_held(), (unsigned long)strlen(payload));
        if (send_all(s, line, strlen(line)) && send_all(s, payload, strlen(payload)))
            *answer = receive_answer(s, &code);
        closesocket(s);
    }
    if (*answer == NULL) {
        code = UNAVAILABLE;
        *answer = copy("{\"Success\":false,\"Error\":\"no simulator answers \",\"ErrorCode\":2147944122}");
    }
    return code;
}
