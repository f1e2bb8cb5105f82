/* bcryptprimitives.dll: the random numbers of programs by Go, which Wine 8
 * lacks. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    return RtlGenRandom(buffer, (ULONG)length);
}
